// File: cc/step/sampling_params.h
// How one request's tokens are chosen. Ranges are those of the OpenAI API and vLLM; Validate() is
// the only place of the core that checks them. Order of application: docs/sampling.md. A new field
// is a member, a line of Visit(), a check, and its effect in cc/sampling.
#ifndef PAGEMILL_CC_STEP_SAMPLING_PARAMS_H_
#define PAGEMILL_CC_STEP_SAMPLING_PARAMS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "cc/base/field_info.h"
#include "cc/base/status.h"

namespace pagemill::step {

struct SamplingParams {
  static constexpr int32_t kNoLogprobs = -1;
  static constexpr int32_t kAllLogprobs = -2;  // the whole vocabulary
  static constexpr size_t kMaxLogprobTokenIds = 128;
  static constexpr int32_t kMaxRepetitionPattern = 1024;  // tokens
  static constexpr int32_t kNoTimestamps = -1;

  // What is reported as log probabilities (docs/sampling.md). Raw: of the unmodified logits.
  // Processed: of those that the token is drawn from. Logits are not normalized.
  static constexpr int32_t kRawLogprobs = 0;
  static constexpr int32_t kRawLogits = 1;
  static constexpr int32_t kProcessedLogprobs = 2;
  static constexpr int32_t kProcessedLogits = 3;

  float temperature = 1.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  float repetition_penalty = 1.0f;
  std::vector<std::pair<int32_t, float>> logit_bias;
  uint64_t seed = 0;
  int32_t max_tokens = 16;
  int32_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<int32_t> eos_token_ids;
  std::vector<int32_t> stop_token_ids;
  int32_t logprobs = kNoLogprobs;
  int32_t prompt_logprobs = kNoLogprobs;
  std::vector<int32_t> logprob_token_ids;
  int32_t logprobs_mode = kRawLogprobs;
  int32_t repetition_max_pattern = 0;
  int32_t repetition_min_pattern = 0;
  int32_t repetition_min_count = 0;
  int32_t timestamp_begin = kNoTimestamps;
  bool watermarking = true;

  template <typename Visitor>
  static void Visit(Visitor&& visit) {
    using P = SamplingParams;
    visit("temperature", &P::temperature, Value("below 1e-5 is greedy").AtLeast(0).InC(1));
    visit("top_k", &P::top_k, Value("most likely tokens to draw from; 0 = all").AtLeast(0).InC(2));
    visit("top_p", &P::top_p, Value("probability of the tokens to draw from").Above(0, 1).InC(3));
    visit("min_p", &P::min_p,
          Value("least probability, relative to the most likely token").Between(0, 1).InC(4));
    visit("presence_penalty", &P::presence_penalty,
          Value("over output tokens").Between(-2, 2).InC(5));
    visit("frequency_penalty", &P::frequency_penalty,
          Value("over output tokens").Between(-2, 2).InC(6));
    visit(
        "repetition_penalty", &P::repetition_penalty,
        Value("over prompt and output tokens").Above(0, std::numeric_limits<float>::max()).InC(7));
    visit("logit_bias", &P::logit_bias, Value("(token id, bias in [-100, 100])").InC(16));
    visit("seed", &P::seed, Value("every request has one; equal seeds draw equal tokens").InC(8));
    visit("max_tokens", &P::max_tokens,
          Value("at least 1 (0 only with prompt logprobs: score the prompt)").InC(9));
    visit("min_tokens", &P::min_tokens, Value("at most max_tokens").AtLeast(0).InC(10));
    visit("ignore_eos", &P::ignore_eos, Value("go on after an end-of-sequence token").InC(14));
    visit("eos_token_ids", &P::eos_token_ids,
          Value("of the model; not reported as stop reason").InC(15));
    visit("stop_token_ids", &P::stop_token_ids,
          Value("of the client; reported as stop reason").InC(11));
    visit("logprobs", &P::logprobs,
          Value("alternatives per sampled token; 0 = only the sampled one, -1 = none").InC(12));
    visit("prompt_logprobs", &P::prompt_logprobs, Value("the same for prompt tokens").InC(13));
    visit("logprob_token_ids", &P::logprob_token_ids,
          Value("alternatives per sampled token in place of the most likely; needs logprobs = 0")
              .InC(17));
    visit("logprobs_mode", &P::logprobs_mode,
          Value("raw log probabilities, raw logits, processed log probabilities, processed logits")
              .Between(kRawLogprobs, kProcessedLogits)
              .InC(18));
    visit("repetition_max_pattern", &P::repetition_max_pattern,
          Value("longest pattern of tokens whose repetition ends the output; 0 = off")
              .Between(0, kMaxRepetitionPattern)
              .InC(19));
    visit("repetition_min_pattern", &P::repetition_min_pattern,
          Value("shortest such pattern; 0 = 1").AtLeast(0).InC(20));
    visit("repetition_min_count", &P::repetition_min_count,
          Value("times that the pattern stands at the end; at least 2").AtLeast(0).InC(21));
    visit("timestamp_begin", &P::timestamp_begin,
          Value("first of the tokens that are timestamps, up to the last of the vocabulary: one of"
                " them comes if together they are likelier than each other token; -1 = none"));
    visit("watermarking", &P::watermarking,
          Value("mark the drawn tokens, if the engine has a watermark"));
  }

  bool has_timestamps() const { return timestamp_begin != kNoTimestamps; }
  bool greedy() const { return temperature < 1e-5f; }
  bool detects_repetition() const { return repetition_max_pattern > 0; }
  bool reports_processed() const {
    return logprobs_mode == kProcessedLogprobs || logprobs_mode == kProcessedLogits;
  }
  bool reports_logits() const {
    return logprobs_mode == kRawLogits || logprobs_mode == kProcessedLogits;
  }
  // kInvalidArgument names the field, its value and its range. `vocab_size` bounds token ids.
  Status Validate(int32_t vocab_size) const;
};

}  // namespace pagemill::step

#endif  // PAGEMILL_CC_STEP_SAMPLING_PARAMS_H_
