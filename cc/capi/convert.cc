#include "cc/capi/convert.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "cc/capi/calls.h"
#include "cc/capi/versioned.h"

namespace pagemill::capi {
namespace {

constexpr size_t kFirstSamplingParamsSize =
    offsetof(pagemill_sampling_params, num_stop_token_ids) + sizeof(size_t);
constexpr size_t kFirstRequestSize = offsetof(pagemill_request, streaming_input);

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

StatusOr<step::KvTransferParams> CopyPairs(const char* field, const pagemill_string_pair* pairs,
                                           size_t count) {
  PAGEMILL_RETURN_IF_ERROR(CheckArray(field, pairs, count, step::kMaxKvTransferParams));
  step::KvTransferParams copy;
  for (size_t i = 0; i < count; ++i) {
    PAGEMILL_ASSIGN_OR_RETURN(std::string key,
                              CopyString(field, pairs[i].key, step::kMaxKvTransferParamsBytes));
    PAGEMILL_ASSIGN_OR_RETURN(std::string value,
                              CopyString(field, pairs[i].value, step::kMaxKvTransferParamsBytes));
    copy.insert_or_assign(std::move(key), std::move(value));
  }
  return copy;
}

step::LogitsProcessor ToLogitsProcessor(const pagemill_request& request) {
  if (request.logits_processor == nullptr) return {};
  return [function = request.logits_processor, context = request.logits_context,
          id = request.request_id](const step::LogitsRowText& text, std::span<float> logits) {
    const pagemill_logits_row row = {.struct_size = sizeof(row),
                                     .request_id = id,
                                     .prompt_token_ids = text.prompt_token_ids.data(),
                                     .num_prompt_tokens = text.prompt_token_ids.size(),
                                     .output_token_ids = text.output_token_ids.data(),
                                     .num_output_tokens = text.output_token_ids.size(),
                                     .logits = logits.data(),
                                     .vocab_size = logits.size()};
    return CallHost("the logits processor", [&] { return function(context, &row); });
  };
}

}  // namespace

const pagemill_sampling_params kDefaultSamplingParams = [] {
  static const step::SamplingParams defaults;
  std::vector<pagemill_token_value> none;
  return FromSamplingParams(defaults, &none);
}();
const pagemill_request kDefaultRequest = {};
const pagemill_output kDefaultOutput = {};
const pagemill_stats kDefaultStats = {};
const pagemill_kv_events kDefaultKvEvents = {};
const pagemill_runner kDefaultRunner = [] {
  pagemill_runner runner = {};
  runner.chunked_prefill = 1;
  runner.prefix_caching = 1;
  return runner;
}();
const pagemill_kv_group kDefaultKvGroup = {.struct_size = sizeof(pagemill_kv_group),
                                           .kind = "full",
                                           .block_size = 0,
                                           .pages_per_block = 1,
                                           .window_tokens = 0,
                                           .checkpoints = PAGEMILL_CHECKPOINTS_LAST_BOUNDARY,
                                           .recent_states = 0};
const pagemill_request_result kDefaultRequestResult = {};

StatusOr<std::string> CopyString(const char* field, const char* value, size_t max_bytes) {
  if (value == nullptr) return InvalidArgument(std::string(field) + " is NULL");
  const size_t size = strnlen(value, max_bytes + 1);
  if (size <= max_bytes) return std::string(value, size);
  return InvalidArgument(std::string(field) + " has more than " + std::to_string(max_bytes) +
                         " bytes");
}

StatusOr<std::string> CopyOptionalString(const char* field, const char* value, size_t max_bytes) {
  if (value == nullptr) return std::string();
  return CopyString(field, value, max_bytes);
}

StatusOr<bool> CheckFlag(const char* field, int64_t value) {
  if (value == 0 || value == 1) return value == 1;
  return InvalidArgument(std::string(field) + " is " + std::to_string(value) +
                         "; it must be 0 or 1");
}

StatusOr<std::vector<int32_t>> CopyArray(const char* field, const int32_t* items, size_t count,
                                         size_t max_count) {
  PAGEMILL_RETURN_IF_ERROR(CheckArray(field, items, count, max_count));
  return std::vector<int32_t>(items, items + count);
}

StatusOr<std::vector<float>> CopyArray(const char* field, const float* items, size_t count,
                                       size_t max_count) {
  PAGEMILL_RETURN_IF_ERROR(CheckArray(field, items, count, max_count));
  return std::vector<float>(items, items + count);
}

StatusOr<std::vector<std::pair<int32_t, float>>> CopyArray(const char* field,
                                                           const pagemill_token_value* items,
                                                           size_t count, size_t max_count) {
  PAGEMILL_RETURN_IF_ERROR(CheckArray(field, items, count, max_count));
  std::vector<std::pair<int32_t, float>> copy;
  copy.reserve(count);
  for (size_t i = 0; i < count; ++i) copy.emplace_back(items[i].token_id, items[i].value);
  return copy;
}

void AssignValues(const std::vector<std::pair<int32_t, float>>& from,
                  std::vector<pagemill_token_value>* to) {
  to->clear();
  to->reserve(from.size());
  for (const auto& [token_id, value] : from) to->push_back({token_id, value});
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
                            CopyArray("prompt_token_ids", r.prompt_token_ids, r.num_prompt_tokens,
                                      static_cast<size_t>(host.max_model_len())));
  PAGEMILL_ASSIGN_OR_RETURN(result.sampling,
                            ToSamplingParams(sampling, static_cast<size_t>(host.vocab_size())));
  PAGEMILL_ASSIGN_OR_RETURN(result.tenant, CopyOptionalString("tenant", r.tenant));
  PAGEMILL_ASSIGN_OR_RETURN(result.cache_salt, CopyOptionalString("cache_salt", r.cache_salt));
  result.logits_processor = ToLogitsProcessor(r);
  result.priority = r.priority;
  PAGEMILL_ASSIGN_OR_RETURN(result.skip_reading_prefix_cache,
                            CheckFlag("skip_reading_prefix_cache", r.skip_reading_prefix_cache));
  PAGEMILL_ASSIGN_OR_RETURN(result.streaming_input,
                            CheckFlag("streaming_input", r.streaming_input));
  PAGEMILL_ASSIGN_OR_RETURN(result.starts_held, CheckFlag("starts_held", r.starts_held));
  PAGEMILL_ASSIGN_OR_RETURN(
      result.kv_transfer_params,
      CopyPairs("kv_transfer_params", r.kv_transfer_params, r.num_kv_transfer_params));
  PAGEMILL_ASSIGN_OR_RETURN(const bool pooling, CheckFlag("pooling", r.pooling));
  if (pooling) result.pooling = step::PoolingParams{};
  if (r.second_text_start < 0 || r.second_text_start > host.max_model_len()) {
    return InvalidArgument("second_text_start is " + std::to_string(r.second_text_start) +
                           "; it must be a token of the prompt, or 0");
  }
  result.second_text_start = static_cast<int32_t>(r.second_text_start);
  const int64_t now_us = host.NowMicros();
  PAGEMILL_ASSIGN_OR_RETURN(result.start_deadline_us,
                            ToDeadline("start_timeout_s", r.start_timeout_s, now_us));
  PAGEMILL_ASSIGN_OR_RETURN(result.deadline_us, ToDeadline("timeout_s", r.timeout_s, now_us));
  return result;
}

}  // namespace pagemill::capi
