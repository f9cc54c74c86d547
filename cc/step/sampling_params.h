// File: cc/step/sampling_params.h
// How one request's tokens are chosen. Ranges are those of the OpenAI API and vLLM; Validate() is
// the only place that checks them. Order of application: docs/sampling.md.
#ifndef PAGEMILL_CC_STEP_SAMPLING_PARAMS_H_
#define PAGEMILL_CC_STEP_SAMPLING_PARAMS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "cc/base/status.h"

namespace pagemill::step {

struct SamplingParams {
  static constexpr int32_t kNoLogprobs = -1;
  static constexpr int32_t kAllLogprobs = -2;  // the whole vocabulary

  float temperature = 1.0f;                           // >= 0; below 1e-5 is greedy
  int32_t top_k = 0;                                  // 0 = off
  float top_p = 1.0f;                                 // (0, 1]
  float min_p = 0.0f;                                 // [0, 1], relative to the most likely token
  float presence_penalty = 0.0f;                      // [-2, 2], over output tokens
  float frequency_penalty = 0.0f;                     // [-2, 2], over output tokens
  float repetition_penalty = 1.0f;                    // > 0, over prompt and output tokens
  std::vector<std::pair<int32_t, float>> logit_bias;  // (token id, bias in [-100, 100])
  uint64_t seed = 0;        // every request has one; the front end draws it where absent
  int32_t max_tokens = 16;  // >= 1 (0 only with prompt logprobs: score the prompt)
  int32_t min_tokens = 0;   // <= max_tokens
  bool ignore_eos = false;
  std::vector<int32_t> eos_token_ids;   // of the model; not reported as stop reason
  std::vector<int32_t> stop_token_ids;  // asked for by the client; reported as stop reason
  int32_t logprobs = kNoLogprobs;       // alternatives per sampled token; 0 = only the sampled one
  int32_t prompt_logprobs = kNoLogprobs;  // the same for prompt tokens

  bool greedy() const { return temperature < 1e-5f; }
  // kInvalidArgument names the field, its value and its range. `vocab_size` bounds token ids.
  Status Validate(int32_t vocab_size) const;
};

}  // namespace pagemill::step

#endif  // PAGEMILL_CC_STEP_SAMPLING_PARAMS_H_
