#include "cc/capi/pagemill.h"

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "cc/capi/callback_runner.h"
#include "cc/capi/calls.h"
#include "cc/capi/convert.h"
#include "cc/capi/versioned.h"
#include "cc/engine/engine.h"
#include "cc/step/request.h"

namespace {

using pagemill::InvalidArgument;
using pagemill::LogSeverity;
using pagemill::LogSink;
using pagemill::OkStatus;
using pagemill::Status;
using pagemill::StatusCode;
using pagemill::StatusOr;
using pagemill::capi::Guard;
using pagemill::capi::LastError;
using pagemill::capi::WithEngine;
using pagemill::engine::Engine;
using pagemill::step::RequestId;
namespace capi = pagemill::capi;

LogSink ToLogSink(pagemill_log_function log, void* context) {
  if (log == nullptr) return {};
  return [log, context](LogSeverity severity, std::string_view line) {
    const capi::CallbackScope scope;
    log(context, static_cast<int32_t>(severity), std::string(line).c_str());
  };
}

StatusOr<std::unique_ptr<capi::Host>> MakeHost(const pagemill_engine_options* given) {
  PAGEMILL_ASSIGN_OR_RETURN(const pagemill_engine_options options, capi::ReadOptions(given));
  PAGEMILL_ASSIGN_OR_RETURN(capi::HostOptions host, capi::ToHostOptions(options));
  host.log = ToLogSink(options.log, options.log_context);
  if (options.runner == nullptr) return capi::Host::Create(std::move(host));
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<pagemill::engine::Runner> runner,
                            capi::MakeCallbackRunner(options.runner, &host));
  return capi::Host::Create(std::move(host), std::move(runner));
}

}  // namespace

int32_t pagemill_abi_version(void) { return PAGEMILL_ABI_VERSION; }

const char* pagemill_last_error(void) { return LastError().c_str(); }

void pagemill_set_last_error(const char* message) {
  Guard([&]() -> Status {
    PAGEMILL_ASSIGN_OR_RETURN(LastError(),
                              capi::CopyOptionalString("message", message, capi::kMaxPathBytes));
    return OkStatus();
  });
}

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

void pagemill_kv_events_init(pagemill_kv_events* events, size_t struct_size) {
  capi::Initialize(capi::kDefaultKvEvents, struct_size, events);
}
void pagemill_runner_init(pagemill_runner* runner, size_t struct_size) {
  capi::Initialize(capi::kDefaultRunner, struct_size, runner);
}
void pagemill_kv_group_init(pagemill_kv_group* group, size_t struct_size) {
  capi::Initialize(capi::kDefaultKvGroup, struct_size, group);
}
void pagemill_request_result_init(pagemill_request_result* result, size_t struct_size) {
  capi::Initialize(capi::kDefaultRequestResult, struct_size, result);
}

pagemill_status pagemill_engine_create(const pagemill_engine_options* options,
                                       pagemill_engine** engine) {
  return Guard([&]() -> Status {
    if (engine == nullptr) return InvalidArgument("engine is NULL");
    *engine = nullptr;
    PAGEMILL_RETURN_IF_ERROR(capi::CheckNoCallback());
    PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<capi::Host> host, MakeHost(options));
    *engine = new pagemill_engine{.host = std::move(host)};
    return OkStatus();
  });
}

void pagemill_engine_destroy(pagemill_engine* engine) {
  if (Guard([] { return capi::CheckNoCallback(); }) == PAGEMILL_OK) delete engine;
}

pagemill_status pagemill_engine_submit_request(pagemill_engine* engine,
                                               const pagemill_request* request) {
  return WithEngine(engine, [&](Engine& e) -> Status {
    PAGEMILL_ASSIGN_OR_RETURN(pagemill::step::Request copy,
                              capi::ToRequest(request, *engine->host));
    return e.Submit(std::move(copy));
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
                              capi::CopyArray("token_ids", token_ids, num_tokens,
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
    engine->current = capi::OutputView(std::move(engine->ready.front()));
    engine->ready.pop_front();
    const Status& error = engine->current.output().error;
    if (!error.ok()) LastError() = error.message();
    capi::CopyOut(engine->current.ToC(), output);
    return OkStatus();
  });
}

pagemill_status pagemill_engine_output_fd(const pagemill_engine* engine, int32_t* fd) {
  return WithEngine(engine, [&](const Engine& e) -> Status {
    if (fd == nullptr) return InvalidArgument("fd is NULL");
    *fd = e.output_fd();
    if (*fd >= 0) return OkStatus();
    return pagemill::Unimplemented("this platform has no descriptor for outputs");
  });
}

pagemill_status pagemill_engine_stats(const pagemill_engine* engine, pagemill_stats* stats) {
  return WithEngine(engine, [&](const Engine& e) -> Status {
    PAGEMILL_RETURN_IF_ERROR(capi::CheckSize("stats", stats, capi::kFirstStatsSize));
    capi::CopyOut(capi::FromStats(e.stats()), stats);
    return OkStatus();
  });
}

pagemill_status pagemill_step_result_add(pagemill_step_result* step_result,
                                         const pagemill_request_result* result) {
  return Guard([&] { return capi::AddResult(step_result, result); });
}
