#include "cc/step/sampling_params.h"

#include <cmath>
#include <cstdio>
#include <string>

namespace pagemill::step {
namespace {

std::string Text(float value) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%g", static_cast<double>(value));
  return buffer;
}

Status Refuse(const char* field, const std::string& value, const std::string& range) {
  return InvalidArgument(std::string(field) + " is " + value + ", it must be " + range);
}

// NaN fails every comparison, so it is refused as well.
Status CheckRange(const char* field, float value, float low, float high) {
  if (value >= low && value <= high) return OkStatus();
  return Refuse(field, Text(value), "from " + Text(low) + " to " + Text(high));
}

Status CheckTokenId(const char* field, int32_t id, int32_t vocab_size) {
  if (id >= 0 && (vocab_size <= 0 || id < vocab_size)) return OkStatus();
  const std::string range =
      vocab_size > 0 ? "a token id from 0 to " + std::to_string(vocab_size - 1) : "a token id >= 0";
  return Refuse(field, std::to_string(id), range);
}

Status CheckLogprobs(const char* field, int32_t value, int32_t vocab_size) {
  if (value == SamplingParams::kNoLogprobs || value == SamplingParams::kAllLogprobs) {
    return OkStatus();
  }
  if (value >= 0 && (vocab_size <= 0 || value <= vocab_size)) return OkStatus();
  return Refuse(field, std::to_string(value),
                vocab_size > 0 ? "from 0 to the vocabulary's size, " + std::to_string(vocab_size)
                               : "at least 0");
}

Status CheckShape(const SamplingParams& p) {
  if (!(p.temperature >= 0) || std::isinf(p.temperature)) {
    return Refuse("temperature", Text(p.temperature), "a number >= 0");
  }
  if (p.top_k < 0) return Refuse("top_k", std::to_string(p.top_k), "at least 1, or 0 for off");
  if (!(p.top_p > 0 && p.top_p <= 1)) {
    return Refuse("top_p", Text(p.top_p), "greater than 0 and at most 1");
  }
  PM_RETURN_IF_ERROR(CheckRange("min_p", p.min_p, 0, 1));
  PM_RETURN_IF_ERROR(CheckRange("presence_penalty", p.presence_penalty, -2, 2));
  PM_RETURN_IF_ERROR(CheckRange("frequency_penalty", p.frequency_penalty, -2, 2));
  if (!(p.repetition_penalty > 0) || std::isinf(p.repetition_penalty)) {
    return Refuse("repetition_penalty", Text(p.repetition_penalty), "a number greater than 0");
  }
  return OkStatus();
}

Status CheckLengths(const SamplingParams& p) {
  const bool scores_prompt = p.prompt_logprobs != SamplingParams::kNoLogprobs;
  if (p.max_tokens < 0 || (p.max_tokens == 0 && !scores_prompt)) {
    return Refuse("max_tokens", std::to_string(p.max_tokens),
                  "at least 1 (0 only together with prompt_logprobs)");
  }
  if (p.min_tokens < 0) return Refuse("min_tokens", std::to_string(p.min_tokens), "at least 0");
  if (p.min_tokens > p.max_tokens) {
    return Refuse("min_tokens", std::to_string(p.min_tokens),
                  "at most max_tokens, " + std::to_string(p.max_tokens));
  }
  return OkStatus();
}

}  // namespace

Status SamplingParams::Validate(int32_t vocab_size) const {
  PM_RETURN_IF_ERROR(CheckShape(*this));
  PM_RETURN_IF_ERROR(CheckLengths(*this));
  for (const auto& [id, bias] : logit_bias) {
    PM_RETURN_IF_ERROR(CheckTokenId("logit_bias has a key that", id, vocab_size));
    PM_RETURN_IF_ERROR(CheckRange("logit_bias has a value that", bias, -100, 100));
  }
  for (int32_t id : eos_token_ids) {
    PM_RETURN_IF_ERROR(CheckTokenId("eos_token_ids has an entry that", id, vocab_size));
  }
  for (int32_t id : stop_token_ids) {
    PM_RETURN_IF_ERROR(CheckTokenId("stop_token_ids has an entry that", id, vocab_size));
  }
  PM_RETURN_IF_ERROR(CheckLogprobs("logprobs", logprobs, vocab_size));
  return CheckLogprobs("prompt_logprobs", prompt_logprobs, vocab_size);
}

}  // namespace pagemill::step
