#include "cc/step/sampling_params.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <type_traits>

namespace pagemill::step {
namespace {

std::string Text(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%g", value);
  return buffer;
}

std::string Text(const FieldRange& range) {
  if (std::isinf(range.high)) return "a number of at least " + Text(range.low);
  if (range.includes_low) return "from " + Text(range.low) + " to " + Text(range.high);
  const bool bounded = range.high < std::numeric_limits<float>::max();
  return "greater than " + Text(range.low) + (bounded ? " and at most " + Text(range.high) : "");
}

Status Refuse(const char* field, const std::string& value, const std::string& range) {
  return InvalidArgument(std::string(field) + " is " + value + ", it must be " + range);
}

// NaN fails every comparison, so it is refused as well.
Status CheckRange(const char* field, double value, const FieldRange& range) {
  const bool high_enough = range.includes_low ? value >= range.low : value > range.low;
  if (high_enough && value <= range.high && !std::isinf(value)) return OkStatus();
  return Refuse(field, Text(value), Text(range));
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

Status CheckRanges(const SamplingParams& p) {
  Status first;
  SamplingParams::Visit([&](const char* name, auto member, const FieldInfo& info) {
    using Member = std::remove_cvref_t<decltype(p.*member)>;
    if constexpr (std::is_same_v<Member, float> || std::is_same_v<Member, int32_t>) {
      if (first.ok()) first = CheckRange(name, p.*member, info.range);
    }
  });
  return first;
}

Status CheckLengths(const SamplingParams& p) {
  const bool scores_prompt = p.prompt_logprobs != SamplingParams::kNoLogprobs;
  if (p.max_tokens < 0 || (p.max_tokens == 0 && !scores_prompt)) {
    return Refuse("max_tokens", std::to_string(p.max_tokens),
                  "at least 1 (0 only together with prompt_logprobs)");
  }
  if (p.min_tokens > p.max_tokens) {
    return Refuse("min_tokens", std::to_string(p.min_tokens),
                  "at most max_tokens, " + std::to_string(p.max_tokens));
  }
  return OkStatus();
}

Status CheckLogprobTokenIds(const SamplingParams& p, int32_t vocab_size) {
  if (p.logprob_token_ids.empty()) return OkStatus();
  if (p.logprob_token_ids.size() > SamplingParams::kMaxLogprobTokenIds) {
    return Refuse("the length of logprob_token_ids", std::to_string(p.logprob_token_ids.size()),
                  "at most " + std::to_string(SamplingParams::kMaxLogprobTokenIds));
  }
  if (p.logprobs != 0) {
    return Refuse("logprobs", std::to_string(p.logprobs), "0 together with logprob_token_ids");
  }
  for (int32_t id : p.logprob_token_ids) {
    PAGEMILL_RETURN_IF_ERROR(CheckTokenId("logprob_token_ids has an entry that", id, vocab_size));
  }
  return OkStatus();
}

Status CheckRepetition(const SamplingParams& p) {
  if (p.repetition_min_pattern > p.repetition_max_pattern) {
    return Refuse("repetition_min_pattern", std::to_string(p.repetition_min_pattern),
                  "at most repetition_max_pattern, " + std::to_string(p.repetition_max_pattern));
  }
  if (p.detects_repetition() && p.repetition_min_count < 2) {
    return Refuse("repetition_min_count", std::to_string(p.repetition_min_count),
                  "at least 2 (set repetition_max_pattern to 0 to detect no repetition)");
  }
  return OkStatus();
}

}  // namespace

Status SamplingParams::Validate(int32_t vocab_size) const {
  PAGEMILL_RETURN_IF_ERROR(CheckRanges(*this));
  PAGEMILL_RETURN_IF_ERROR(CheckLengths(*this));
  for (const auto& [id, bias] : logit_bias) {
    PAGEMILL_RETURN_IF_ERROR(CheckTokenId("logit_bias has a key that", id, vocab_size));
    PAGEMILL_RETURN_IF_ERROR(
        CheckRange("logit_bias has a value that", bias, {.low = -100, .high = 100}));
  }
  for (int32_t id : eos_token_ids) {
    PAGEMILL_RETURN_IF_ERROR(CheckTokenId("eos_token_ids has an entry that", id, vocab_size));
  }
  for (int32_t id : stop_token_ids) {
    PAGEMILL_RETURN_IF_ERROR(CheckTokenId("stop_token_ids has an entry that", id, vocab_size));
  }
  PAGEMILL_RETURN_IF_ERROR(CheckLogprobs("logprobs", logprobs, vocab_size));
  PAGEMILL_RETURN_IF_ERROR(CheckLogprobs("prompt_logprobs", prompt_logprobs, vocab_size));
  PAGEMILL_RETURN_IF_ERROR(CheckLogprobTokenIds(*this, vocab_size));
  if (has_timestamps()) {
    PAGEMILL_RETURN_IF_ERROR(CheckTokenId("timestamp_begin", timestamp_begin, vocab_size));
  }
  return CheckRepetition(*this);
}

}  // namespace pagemill::step
