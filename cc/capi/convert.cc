#include "cc/capi/convert.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "cc/capi/versioned.h"

namespace pagemill::capi {
namespace {

constexpr size_t kFirstEngineOptionsSize = offsetof(pagemill_engine_options, scheduling_policy);
constexpr size_t kFirstSamplingParamsSize =
    offsetof(pagemill_sampling_params, num_stop_token_ids) + sizeof(size_t);
constexpr size_t kFirstRequestSize = offsetof(pagemill_request, streaming_input);

constexpr size_t kMaxStringBytes = 1024;  // of a tenant's name or a salt
constexpr size_t kMaxPathBytes = 4096;    // PATH_MAX

StatusOr<std::string> CopyString(const char* field, const char* value, size_t max_bytes) {
  if (value == nullptr) return InvalidArgument(std::string(field) + " is NULL");
  const size_t size = strnlen(value, max_bytes + 1);
  if (size <= max_bytes) return std::string(value, size);
  return InvalidArgument(std::string(field) + " has more than " + std::to_string(max_bytes) +
                         " bytes");
}

StatusOr<std::string> CopyOptionalString(const char* field, const char* value) {
  if (value == nullptr) return std::string();
  return CopyString(field, value, kMaxStringBytes);
}

StatusOr<bool> CheckFlag(const char* field, int32_t value) {
  if (value == 0 || value == 1) return value == 1;
  return InvalidArgument(std::string(field) + " is " + std::to_string(value) +
                         "; it must be 0 or 1");
}

// The deadline `timeout_s` seconds from now, in microseconds of the engine's clock.
StatusOr<std::optional<int64_t>> ToDeadline(const char* field, double timeout_s, int64_t now_us) {
  constexpr double kLongest = 1e9;
  if (!(timeout_s >= 0)) {
    return InvalidArgument(std::string(field) + " is " + std::to_string(timeout_s) +
                           "; it must be 0 (no limit) or a number of seconds");
  }
  if (timeout_s == 0) return std::optional<int64_t>();
  return std::optional(now_us + static_cast<int64_t>(std::min(timeout_s, kLongest) * 1e6));
}

}  // namespace

const pagemill_engine_options kDefaultEngineOptions = {
    .struct_size = sizeof(pagemill_engine_options),
    .program_path = nullptr,
    .num_threads = 0,
    .max_model_len = 2048,
    .max_num_tokens = 2048,
    .max_num_seqs = 32,
    .max_num_logits_rows = 32,
    .num_blocks = 0,
    .block_size = 16,
    .max_waiting_requests = 1024,
    .kv_cache_dtype = "bf16",
    .scheduling_policy = "fcfs",
    .prefix_caching_hash = "xxh3-128",
    .enable_prefix_caching = 1,
    .long_prefill_token_threshold = 0,
};

const pagemill_sampling_params kDefaultSamplingParams = DefaultSamplingParams();
const pagemill_request kDefaultRequest = {};
const pagemill_output kDefaultOutput = {};
const pagemill_stats kDefaultStats = {};

StatusOr<HostOptions> ToHostOptions(const pagemill_engine_options* options) {
  pagemill_engine_options o = kDefaultEngineOptions;
  PAGEMILL_RETURN_IF_ERROR(CopyIn("options", options, kFirstEngineOptionsSize, &o));
  HostOptions h;
  PAGEMILL_ASSIGN_OR_RETURN(h.program_path,
                            CopyString("program_path", o.program_path, kMaxPathBytes));
  PAGEMILL_ASSIGN_OR_RETURN(const std::string dtype,
                            CopyString("kv_cache_dtype", o.kv_cache_dtype, kMaxStringBytes));
  h.max_model_len = o.max_model_len;
  h.executor.num_threads = o.num_threads;
  h.executor.max_num_tokens = o.max_num_tokens;
  h.executor.max_num_seqs = o.max_num_seqs;
  h.executor.max_num_logits_rows = o.max_num_logits_rows;
  h.executor.num_blocks = o.num_blocks;
  h.executor.block_size = o.block_size;
  PAGEMILL_ASSIGN_OR_RETURN(h.executor.kv_cache_dtype, program::ParseKvCacheDType(dtype));
  h.engine.max_waiting_requests = o.max_waiting_requests;
  h.engine.long_prefill_token_threshold = o.long_prefill_token_threshold;
  PAGEMILL_ASSIGN_OR_RETURN(h.engine.scheduling_policy,
                            CopyString("scheduling_policy", o.scheduling_policy, kMaxStringBytes));
  PAGEMILL_ASSIGN_OR_RETURN(
      h.engine.prefix_caching_hash,
      CopyString("prefix_caching_hash", o.prefix_caching_hash, kMaxStringBytes));
  PAGEMILL_ASSIGN_OR_RETURN(h.engine.enable_prefix_caching,
                            CheckFlag("enable_prefix_caching", o.enable_prefix_caching));
  return h;
}

StatusOr<std::vector<int32_t>> CopyTokens(const char* field, const int32_t* tokens, size_t count,
                                          size_t max_count) {
  if (count > max_count) {
    return InvalidArgument(std::string(field) + " has " + std::to_string(count) +
                           " entries; it may have " + std::to_string(max_count));
  }
  if (count == 0) return std::vector<int32_t>();
  if (tokens == nullptr) return InvalidArgument(std::string(field) + " is NULL");
  return std::vector<int32_t>(tokens, tokens + count);
}

StatusOr<scheduler::InputPart> ToInputPart(int32_t part) {
  if (part >= PAGEMILL_INPUT_MORE && part <= PAGEMILL_INPUT_LAST) {
    return static_cast<scheduler::InputPart>(part);
  }
  return InvalidArgument("part is " + std::to_string(part) +
                         "; it must be a pagemill_input_part, 0 to 2");
}

StatusOr<scheduler::PauseMode> ToPauseMode(int32_t mode) {
  if (mode >= PAGEMILL_PAUSE_KEEP && mode <= PAGEMILL_PAUSE_ABORT) {
    return static_cast<scheduler::PauseMode>(mode);
  }
  return InvalidArgument("mode is " + std::to_string(mode) +
                         "; it must be a pagemill_pause_mode, 0 to 2");
}

StatusOr<step::Request> ToRequest(const pagemill_request* request, const Host& host) {
  pagemill_request r = kDefaultRequest;
  PAGEMILL_RETURN_IF_ERROR(CopyIn("request", request, kFirstRequestSize, &r));
  pagemill_sampling_params sampling = kDefaultSamplingParams;
  if (r.sampling != nullptr) {
    PAGEMILL_RETURN_IF_ERROR(CopyIn("sampling", r.sampling, kFirstSamplingParamsSize, &sampling));
  }
  step::Request result;
  result.id = step::RequestId(r.request_id);
  PAGEMILL_ASSIGN_OR_RETURN(result.prompt_token_ids,
                            CopyTokens("prompt_token_ids", r.prompt_token_ids, r.num_prompt_tokens,
                                       static_cast<size_t>(host.max_model_len())));
  PAGEMILL_ASSIGN_OR_RETURN(result.sampling,
                            ToSamplingParams(sampling, static_cast<size_t>(host.vocab_size())));
  PAGEMILL_ASSIGN_OR_RETURN(result.tenant, CopyOptionalString("tenant", r.tenant));
  PAGEMILL_ASSIGN_OR_RETURN(result.cache_salt, CopyOptionalString("cache_salt", r.cache_salt));
  result.priority = r.priority;
  PAGEMILL_ASSIGN_OR_RETURN(result.skip_reading_prefix_cache,
                            CheckFlag("skip_reading_prefix_cache", r.skip_reading_prefix_cache));
  PAGEMILL_ASSIGN_OR_RETURN(result.streaming_input,
                            CheckFlag("streaming_input", r.streaming_input));
  PAGEMILL_ASSIGN_OR_RETURN(result.starts_held, CheckFlag("starts_held", r.starts_held));
  const int64_t now_us = host.NowMicros();
  PAGEMILL_ASSIGN_OR_RETURN(result.start_deadline_us,
                            ToDeadline("start_timeout_s", r.start_timeout_s, now_us));
  PAGEMILL_ASSIGN_OR_RETURN(result.deadline_us, ToDeadline("timeout_s", r.timeout_s, now_us));
  return result;
}

pagemill_output FromOutput(const engine::RequestOutput& output) {
  const auto reason = [](const std::optional<step::FinishReason>& given) {
    return given ? static_cast<int32_t>(*given) + 1 : int32_t{PAGEMILL_NOT_FINISHED};
  };
  return {
      .struct_size = sizeof(pagemill_output),
      .request_id = output.request_id.value(),
      .token_ids = output.new_token_ids.data(),
      .num_tokens = output.new_token_ids.size(),
      .finish_reason = reason(output.finish_reason),
      .num_cached_tokens = output.num_cached_tokens,
      .error = static_cast<int32_t>(output.error.code()),
      .stop_token_id = output.stop_token_id.value_or(-1),
      .error_message = output.error.message().c_str(),
      .queued_s = output.queued_s,
      .prefill_s = output.prefill_s,
      .decode_s = output.decode_s,
      .turn_finished = reason(output.turn_finished),
      .retry_after_s = output.error.retry_after_s(),
  };
}

}  // namespace pagemill::capi
