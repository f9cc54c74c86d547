// File: cc/step/step_plan.h
// What the scheduler asks of the runner for one step. There is no prefill and no decode: each entry
// says how many tokens were computed before and which tokens to run now.
//
// A plan is a diff: block tables and requests that did not change are not repeated. A runner
// applies, in this order: `released` and `released_media`, then each entry of `scheduled`. So an
// encoder output may be released and made again in one plan.
#ifndef PAGEMILL_CC_STEP_STEP_PLAN_H_
#define PAGEMILL_CC_STEP_STEP_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/step/request.h"

namespace pagemill::step {

// In ScheduledRequest::token_ids: the token that the request samples last in the steps before. They
// are in flight, so it is not known when the plan is made; the runner puts it in.
// In `draft_token_ids`: a draft that the runner chooses when the step begins. The plan says only
// that it is worth its time. The runner leaves out those for which it has no token
// (RequestResult::num_missing_drafts).
inline constexpr int32_t kPlaceholderTokenId = -1;

struct ScheduledRequest {
  RequestIndex index;
  // Set when `index` starts to hold this request (first run, or resumed after preemption): the
  // runner resets the slot's block table and sampling state before it applies the rest. Null
  // otherwise.
  std::shared_ptr<const Request> start;
  // With `start`: output tokens that exist already (a resumed request): penalties and seeds need
  // them.
  std::vector<int32_t> resumed_output_token_ids;

  // Context before this step. An upper bound if the token is a placeholder, since steps in flight
  // may reject drafts of the request: the runner counts its tokens, of which the newest is run.
  int32_t num_computed_tokens = 0;
  std::vector<int32_t>
      token_ids;  // the tokens to run; token i has position num_computed_tokens + i
  std::vector<int32_t> draft_token_ids;  // tokens after `token_ids` to verify; run too
  // Indices into Request::media: encoder outputs to make before the tokens run. All that a token of
  // this step needs and no earlier step made for it.
  std::vector<int32_t> media_to_encode;
  // Blocks appended to the slot's block table, one list per KV group; without new blocks there are
  // no lists, or empty ones. The null block stands at positions that the group's layers never read.
  std::vector<std::vector<BlockId>> new_block_ids;
  // True if the step reaches the request's last known token, so that a token is sampled.
  bool sample = false;
  // Logprobs of the prompt tokens that follow this step's tokens are wanted (one logits row a
  // token).
  bool prompt_logprobs = false;

  int32_t num_tokens() const {
    return static_cast<int32_t>(token_ids.size() + draft_token_ids.size());
  }
  bool has_new_blocks() const {
    return std::any_of(new_block_ids.begin(), new_block_ids.end(),
                       [](const std::vector<BlockId>& group) { return !group.empty(); });
  }
};

struct StepPlan {
  uint64_t step_id = 0;
  std::vector<RequestIndex> released;       // slots that hold no request any more
  std::vector<std::string> released_media;  // content ids whose encoder outputs are not kept
  std::vector<ScheduledRequest> scheduled;  // running order
  int32_t total_num_tokens = 0;
  // Per KV group: leading blocks that all entries of `scheduled` have in common, computed by
  // earlier steps. Attention may read them once for the whole batch. Empty: not known.
  std::vector<int32_t> num_common_prefix_blocks;

  bool empty() const { return scheduled.empty(); }
};

}  // namespace pagemill::step

#endif  // PAGEMILL_CC_STEP_STEP_PLAN_H_
