#include "cc/capi/pagemill.h"

#include <deque>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "cc/capi/convert.h"
#include "cc/capi/host.h"
#include "cc/capi/versioned.h"
#include "cc/engine/engine.h"
#include "cc/step/request.h"

struct pagemill_engine {
  std::unique_ptr<pagemill::capi::Host> host;
  std::deque<pagemill::engine::RequestOutput>
      ready;                                // read from the engine, not yet returned to the host
  pagemill::engine::RequestOutput current;  // memory that `pagemill_output` points into
};

namespace {

using pagemill::InvalidArgument;
using pagemill::OkStatus;
using pagemill::Status;
using pagemill::StatusCode;
using pagemill::engine::Engine;
using pagemill::step::RequestId;
namespace capi = pagemill::capi;

std::string& LastError() {
  thread_local std::string message;
  return message;
}

pagemill_status Report(const Status& status) {
  if (!status.ok()) LastError() = status.message();
  return static_cast<pagemill_status>(status.code());
}

// Runs `body`, which returns a Status, and converts exceptions to statuses.
template <typename Body>
pagemill_status Guard(Body&& body) noexcept {
  try {
    try {
      return Report(body());
    } catch (const std::bad_alloc&) {
      return Report(pagemill::ResourceExhausted("out of memory"));
    } catch (const std::exception& e) {
      return Report(pagemill::Internal(e.what()));
    }
  } catch (...) {  // there was no memory for the message
    return PAGEMILL_RESOURCE_EXHAUSTED;
  }
}

// Likewise for a body that receives the engine of `handle`.
template <typename Body>
pagemill_status WithEngine(const pagemill_engine* handle, Body&& body) noexcept {
  return Guard([&]() -> Status {
    if (handle == nullptr) return InvalidArgument("engine is NULL");
    return body(handle->host->engine());
  });
}

}  // namespace

int32_t pagemill_abi_version(void) { return PAGEMILL_ABI_VERSION; }

const char* pagemill_last_error(void) { return LastError().c_str(); }

void pagemill_engine_options_init(pagemill_engine_options* options, size_t struct_size) {
  capi::Initialize(capi::kDefaultEngineOptions, struct_size, options);
}
void pagemill_sampling_params_init(pagemill_sampling_params* params, size_t struct_size) {
  capi::Initialize(capi::kDefaultSamplingParams, struct_size, params);
}
void pagemill_request_init(pagemill_request* request, size_t struct_size) {
  capi::Initialize(capi::kDefaultRequest, struct_size, request);
}
void pagemill_output_init(pagemill_output* output, size_t struct_size) {
  capi::Initialize(capi::kDefaultOutput, struct_size, output);
}
void pagemill_stats_init(pagemill_stats* stats, size_t struct_size) {
  capi::Initialize(capi::kDefaultStats, struct_size, stats);
}

pagemill_status pagemill_engine_create(const pagemill_engine_options* options,
                                       pagemill_engine** engine) {
  return Guard([&]() -> Status {
    if (engine == nullptr) return InvalidArgument("engine is NULL");
    *engine = nullptr;
    PAGEMILL_ASSIGN_OR_RETURN(capi::HostOptions host_options, capi::ToHostOptions(options));
    PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<capi::Host> host,
                              capi::Host::Create(std::move(host_options)));
    *engine = new pagemill_engine{std::move(host), {}, {}};
    return OkStatus();
  });
}

void pagemill_engine_destroy(pagemill_engine* engine) { delete engine; }

pagemill_status pagemill_engine_submit_request(pagemill_engine* engine,
                                               const pagemill_request* request) {
  return WithEngine(engine, [&](Engine& e) -> Status {
    PAGEMILL_ASSIGN_OR_RETURN(pagemill::step::Request made,
                              capi::ToRequest(request, *engine->host));
    return e.Submit(std::move(made));
  });
}

pagemill_status pagemill_engine_submit(pagemill_engine* engine, uint64_t request_id,
                                       const int32_t* prompt_token_ids, size_t num_prompt_tokens,
                                       const pagemill_sampling_params* params) {
  pagemill_request request;
  pagemill_request_init(&request, sizeof(request));
  request.request_id = request_id;
  request.prompt_token_ids = prompt_token_ids;
  request.num_prompt_tokens = num_prompt_tokens;
  request.sampling = params;
  return pagemill_engine_submit_request(engine, &request);
}

pagemill_status pagemill_engine_extend(pagemill_engine* engine, uint64_t request_id,
                                       const int32_t* token_ids, size_t num_tokens, int32_t part) {
  return WithEngine(engine, [&](Engine& e) -> Status {
    pagemill::scheduler::InputChunk chunk;
    PAGEMILL_ASSIGN_OR_RETURN(chunk.token_ids,
                              capi::CopyTokens("token_ids", token_ids, num_tokens,
                                               static_cast<size_t>(engine->host->max_model_len())));
    PAGEMILL_ASSIGN_OR_RETURN(chunk.part, capi::ToInputPart(part));
    return e.Extend(RequestId(request_id), std::move(chunk));
  });
}

pagemill_status pagemill_engine_release(pagemill_engine* engine, uint64_t request_id) {
  return WithEngine(engine, [&](Engine& e) {
    e.Release(RequestId(request_id));
    return OkStatus();
  });
}

pagemill_status pagemill_engine_abort(pagemill_engine* engine, uint64_t request_id) {
  return WithEngine(engine, [&](Engine& e) {
    e.Abort(RequestId(request_id));
    return OkStatus();
  });
}

pagemill_status pagemill_engine_next(pagemill_engine* engine, double timeout_s,
                                     pagemill_output* output) {
  return WithEngine(engine, [&](Engine& e) -> Status {
    PAGEMILL_RETURN_IF_ERROR(capi::CheckSize("output", output, capi::kFirstOutputSize));
    if (engine->ready.empty()) {
      for (auto& out : e.Wait(timeout_s)) engine->ready.push_back(std::move(out));
    }
    if (engine->ready.empty()) {
      return {StatusCode::kDeadlineExceeded, "no request had news within the timeout"};
    }
    engine->current = std::move(engine->ready.front());
    engine->ready.pop_front();
    const Status& error = engine->current.error;
    if (!error.ok()) LastError() = error.message();
    capi::CopyOut(capi::FromOutput(engine->current), output);
    return OkStatus();
  });
}

pagemill_status pagemill_engine_stats(const pagemill_engine* engine, pagemill_stats* stats) {
  return WithEngine(engine, [&](const Engine& e) -> Status {
    PAGEMILL_RETURN_IF_ERROR(capi::CheckSize("stats", stats, capi::kFirstStatsSize));
    capi::CopyOut(capi::FromStats(e.stats()), stats);
    return OkStatus();
  });
}

pagemill_status pagemill_engine_drain(pagemill_engine* engine) {
  return WithEngine(engine, [](Engine& e) {
    e.Drain();
    return OkStatus();
  });
}

pagemill_status pagemill_engine_wait_idle(pagemill_engine* engine, double timeout_s) {
  return WithEngine(engine, [&](Engine& e) -> Status {
    if (e.WaitIdle(timeout_s)) return OkStatus();
    return {StatusCode::kDeadlineExceeded, "requests are unfinished after the timeout"};
  });
}

pagemill_status pagemill_engine_pause(pagemill_engine* engine, int32_t mode) {
  return WithEngine(engine, [&](Engine& e) -> Status {
    PAGEMILL_ASSIGN_OR_RETURN(const pagemill::scheduler::PauseMode made, capi::ToPauseMode(mode));
    e.Pause(made);
    return OkStatus();
  });
}

pagemill_status pagemill_engine_wait_paused(pagemill_engine* engine, double timeout_s) {
  return WithEngine(engine, [&](Engine& e) -> Status {
    if (e.WaitPaused(timeout_s)) return OkStatus();
    return {StatusCode::kDeadlineExceeded, "the pause is not complete after the timeout"};
  });
}

pagemill_status pagemill_engine_resume(pagemill_engine* engine) {
  return WithEngine(engine, [](Engine& e) {
    e.Resume();
    return OkStatus();
  });
}

pagemill_status pagemill_engine_reset_prefix_cache(pagemill_engine* engine) {
  return WithEngine(engine, [](Engine& e) -> Status {
    if (e.ResetPrefixCache()) return OkStatus();
    return pagemill::FailedPrecondition("requests hold blocks of the KV cache");
  });
}

pagemill_status pagemill_engine_preempt_and_reset_prefix_cache(pagemill_engine* engine) {
  return WithEngine(engine, [](Engine& e) -> Status {
    if (e.ResetPrefixCache(/*preempt_running=*/true)) return OkStatus();
    return pagemill::FailedPrecondition("blocks of the KV cache are being loaded");
  });
}
