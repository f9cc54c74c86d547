// File: cc/step/step_result.h
// What the runner reports for one step, entry for entry in the order of StepPlan::scheduled.
#ifndef PAGEMILL_CC_STEP_STEP_RESULT_H_
#define PAGEMILL_CC_STEP_STEP_RESULT_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/step/request.h"
#include "cc/step/token_list.h"

namespace pagemill::step {

// Log probabilities (natural log, of the unmodified model distribution) at one position, or what
// SamplingParams::logprobs_mode says.
struct TokenLogprobs {
  int32_t token_id = 0;
  float logprob = 0.0f;
  int32_t rank = 0;                            // 1 = the most likely token
  // Most likely first, or those of SamplingParams::logprob_token_ids in its order.
  std::vector<std::pair<int32_t, float>> top;
};

struct RequestResult {
  RequestIndex index;
  // Accepted drafts, then the sampled token; empty if the plan did not ask to sample.
  TokenList sampled_token_ids;
  // A proposal of what comes after the sampled token, as long as it is worth a step's time; the
  // scheduler verifies as much of it as its limits and free blocks allow. kPlaceholderTokenId: a
  // token that the runner chooses when that step begins. If later steps of the request are planned
  // already, only the number counts, for the step after those.
  std::vector<int32_t> draft_token_ids;
  // Number of the plan's last drafts that were placeholders which the runner did not replace.
  int32_t num_missing_drafts = 0;
  std::vector<TokenLogprobs> logprobs;         // one per sampled token, where asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // of prompt tokens num_computed + 1 ... in order
  // What a pooling request gets when all of its tokens are computed; with
  // engine::RunnerLimits::token_rows, the rows of the tokens that were run.
  std::vector<float> pooled;
  // [tokens, layers, choices] of the tokens that were run and of accepted drafts, if
  // Request::return_routed_experts is set.
  std::vector<uint16_t> routed_experts;
  Status failure;                              // not OK: this request fails, the others go on
};

struct StepResult {
  uint64_t step_id = 0;
  std::vector<RequestResult> results;
};

}  // namespace pagemill::step

#endif  // PAGEMILL_CC_STEP_STEP_RESULT_H_
