#include "cc/capi/pagemill.h"

#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "cc/capi/host.h"
#include "cc/engine/engine.h"
#include "cc/step/request.h"

namespace {

using pagemill::Status;
using pagemill::StatusCode;

std::string& LastError() {
  thread_local std::string message;
  return message;
}

pagemill_status Report(const Status& status) {
  if (!status.ok()) LastError() = status.message();
  return static_cast<pagemill_status>(status.code());
}

pagemill_status Invalid(const char* sentence) {
  return Report(pagemill::InvalidArgument(sentence));
}

// Runs `body`, which returns a Status, and turns what the standard library throws into one.
template <typename Body>
pagemill_status Guard(Body&& body) {
  try {
    return Report(body());
  } catch (const std::bad_alloc&) {
    return Report(pagemill::ResourceExhausted("out of memory"));
  } catch (const std::exception& e) {
    return Report(pagemill::Internal(e.what()));
  }
}

// Copies what the caller's version of a struct has over the defaults of ours.
template <typename T>
bool CopyVersioned(const T* from, void (*init)(T*), T* to) {
  init(to);
  if (from == nullptr || from->struct_size < sizeof(size_t) || from->struct_size > sizeof(T)) {
    return false;
  }
  std::memcpy(to, from, from->struct_size);
  return true;
}

pagemill::step::SamplingParams Convert(const pagemill_sampling_params& p) {
  pagemill::step::SamplingParams s;
  s.temperature = p.temperature;
  s.top_k = p.top_k;
  s.top_p = p.top_p;
  s.min_p = p.min_p;
  s.presence_penalty = p.presence_penalty;
  s.frequency_penalty = p.frequency_penalty;
  s.repetition_penalty = p.repetition_penalty;
  s.seed = p.seed;
  s.max_tokens = p.max_tokens;
  s.min_tokens = p.min_tokens;
  s.stop_token_ids.assign(p.stop_token_ids, p.stop_token_ids + p.num_stop_token_ids);
  return s;
}

pagemill::StatusOr<pagemill::capi::HostOptions> Convert(const pagemill_engine_options& o) {
  const auto kv_dtype = pagemill::ParseDType(o.kv_cache_dtype);
  if (!kv_dtype) {
    return pagemill::InvalidArgument("kv_cache_dtype is '" + std::string(o.kv_cache_dtype) +
                                     "'; it must be bf16 or f32");
  }
  pagemill::capi::HostOptions h;
  h.program_path = o.program_path;
  h.max_model_len = o.max_model_len;
  h.executor.num_threads = o.num_threads;
  h.executor.max_num_tokens = o.max_num_tokens;
  h.executor.max_num_seqs = o.max_num_seqs;
  h.executor.max_num_logits_rows = o.max_num_logits_rows;
  h.executor.num_blocks = o.num_blocks;
  h.executor.block_size = o.block_size;
  h.executor.kv_cache_dtype = *kv_dtype;
  h.engine.max_waiting_requests = o.max_waiting_requests;
  return h;
}

int32_t FinishReasonOf(const pagemill::engine::RequestOutput& output) {
  if (!output.finish_reason) return PAGEMILL_NOT_FINISHED;
  return static_cast<int32_t>(*output.finish_reason) + 1;
}

}  // namespace

struct pagemill_engine {
  std::unique_ptr<pagemill::capi::Host> host;
  std::deque<pagemill::engine::RequestOutput> ready;  // read from the engine, not yet handed out
  pagemill::engine::RequestOutput current;            // what `pagemill_output` points into
};

int32_t pagemill_abi_version(void) { return PAGEMILL_ABI_VERSION; }

const char* pagemill_last_error(void) { return LastError().c_str(); }

void pagemill_engine_options_init(pagemill_engine_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_size = sizeof(*options);
  options->max_model_len = 2048;
  options->max_num_tokens = 2048;
  options->max_num_seqs = 32;
  options->max_num_logits_rows = 32;
  options->block_size = 16;
  options->kv_cache_dtype = "bf16";
  options->max_waiting_requests = 1024;
}

void pagemill_sampling_params_init(pagemill_sampling_params* params) {
  if (params == nullptr) return;
  *params = {};
  params->struct_size = sizeof(*params);
  params->temperature = 1.0f;
  params->top_p = 1.0f;
  params->repetition_penalty = 1.0f;
  params->max_tokens = 16;
}

pagemill_status pagemill_engine_create(const pagemill_engine_options* options,
                                       pagemill_engine** engine) {
  if (engine == nullptr) return Invalid("engine is NULL");
  *engine = nullptr;
  pagemill_engine_options o;
  if (!CopyVersioned(options, pagemill_engine_options_init, &o)) {
    return Invalid("options is NULL or was not filled in by pagemill_engine_options_init");
  }
  if (o.program_path == nullptr) return Invalid("options.program_path is NULL");
  if (o.kv_cache_dtype == nullptr) return Invalid("options.kv_cache_dtype is NULL");
  return Guard([&]() -> Status {
    PM_ASSIGN_OR_RETURN(pagemill::capi::HostOptions host_options, Convert(o));
    PM_ASSIGN_OR_RETURN(std::unique_ptr<pagemill::capi::Host> host,
                        pagemill::capi::Host::Create(std::move(host_options)));
    *engine = new pagemill_engine{std::move(host), {}, {}};
    return pagemill::OkStatus();
  });
}

void pagemill_engine_destroy(pagemill_engine* engine) { delete engine; }

pagemill_status pagemill_engine_submit(pagemill_engine* engine, uint64_t request_id,
                                       const int32_t* prompt_token_ids, size_t num_prompt_tokens,
                                       const pagemill_sampling_params* params) {
  if (engine == nullptr) return Invalid("engine is NULL");
  if (prompt_token_ids == nullptr && num_prompt_tokens > 0) {
    return Invalid("prompt_token_ids is NULL");
  }
  pagemill_sampling_params p;
  if (!CopyVersioned(params, pagemill_sampling_params_init, &p)) {
    return Invalid("params is NULL or was not filled in by pagemill_sampling_params_init");
  }
  if (p.stop_token_ids == nullptr && p.num_stop_token_ids > 0) {
    return Invalid("params.stop_token_ids is NULL");
  }
  return Guard([&] {
    pagemill::step::Request request;
    request.id = pagemill::step::RequestId(request_id);
    request.prompt_token_ids.assign(prompt_token_ids, prompt_token_ids + num_prompt_tokens);
    request.sampling = Convert(p);
    return engine->host->engine().Submit(std::move(request));
  });
}

pagemill_status pagemill_engine_abort(pagemill_engine* engine, uint64_t request_id) {
  if (engine == nullptr) return Invalid("engine is NULL");
  return Guard([&] {
    engine->host->engine().Abort(pagemill::step::RequestId(request_id));
    return pagemill::OkStatus();
  });
}

pagemill_status pagemill_engine_next(pagemill_engine* engine, double timeout_s,
                                     pagemill_output* output) {
  if (engine == nullptr || output == nullptr) return Invalid("engine or output is NULL");
  return Guard([&]() -> Status {
    if (engine->ready.empty()) {
      for (auto& out : engine->host->engine().Wait(timeout_s))
        engine->ready.push_back(std::move(out));
    }
    if (engine->ready.empty()) {
      return {StatusCode::kDeadlineExceeded, "no request had news within the timeout"};
    }
    engine->current = std::move(engine->ready.front());
    engine->ready.pop_front();
    const auto& out = engine->current;
    if (!out.error.ok()) LastError() = out.error.message();
    *output = {.request_id = out.request_id.value(),
               .token_ids = out.new_token_ids.data(),
               .num_tokens = out.new_token_ids.size(),
               .finish_reason = FinishReasonOf(out),
               .num_cached_tokens = out.num_cached_tokens,
               .error = static_cast<int32_t>(out.error.code())};
    return pagemill::OkStatus();
  });
}

pagemill_status pagemill_engine_stats(const pagemill_engine* engine, pagemill_stats* stats) {
  if (engine == nullptr || stats == nullptr) return Invalid("engine or stats is NULL");
  return Guard([&] {
    const auto s = engine->host->engine().stats();
    *stats = {.num_running = static_cast<uint64_t>(s.num_running),
              .num_waiting = static_cast<uint64_t>(s.num_waiting),
              .num_used_blocks = static_cast<uint64_t>(s.kv_blocks_used),
              .num_blocks = static_cast<uint64_t>(s.kv_blocks_total)};
    return pagemill::OkStatus();
  });
}
