// Requests whose prompts take several steps, several of them at a time.
#include <algorithm>

#include "cc/scheduler/scheduler.h"

namespace pagemill::scheduler {

bool Scheduler::IsLong(const RequestState& request) const {
  return options_.max_long_partial_prefills > 0 &&
         request.prompt_size > options_.long_prefill_token_threshold;
}

void Scheduler::SetPrefillsPartly(RequestState* request, bool partly) {
  if (request->prefills_partly == partly) return;
  request->prefills_partly = partly;
  const int32_t change = partly ? 1 : -1;
  num_partial_prefills_ += change;
  if (IsLong(*request)) num_long_partial_prefills_ += change;
}

// The tokens of this step that are not for requests that decode, and how many prefills they are
// for: those that run, and those that may start.
void Scheduler::SharePrefills(Budget* budget) const {
  if (options_.max_partial_prefills == 0 || !options_.chunked_prefill) return;
  const auto num_running = static_cast<int32_t>(running_.size());
  const auto num_waiting = static_cast<int32_t>(requests_.size() - parked_.size()) - num_running;
  const int32_t beside_decoding = std::max(1, budget->tokens - num_decoding());
  budget->prefill_tokens = std::min(budget->prefill_tokens, beside_decoding);
  budget->prefill_shares =
      std::max(1, std::min(options_.max_partial_prefills, num_partial_prefills_ + num_waiting));
}

// Of a request that would run `num_tokens` tokens: what is left, or an equal part of it. What one
// does not use is for those after it. A single token is what a decoding request runs.
int32_t Scheduler::PrefillShare(const Budget& budget, int32_t num_tokens) {
  if (num_tokens == 1) return 1;
  const int32_t share = std::max(1, budget.prefill_tokens / std::max(1, budget.prefill_shares));
  return std::min({num_tokens, share, budget.prefill_tokens});
}

void Scheduler::TakePrefillTokens(int32_t num_tokens, Budget* budget) {
  budget->prefill_tokens = std::max(0, budget->prefill_tokens - num_tokens);
  if (budget->prefill_shares > 1) --budget->prefill_shares;
}

// May a request start that leaves part of its prompt to later steps? A long one that may not is
// parked, so that others pass it.
Scheduler::PartialStart Scheduler::StartPartially(RequestState* request) {
  if (IsLong(*request) && num_long_partial_prefills_ >= options_.max_long_partial_prefills) {
    Park(request, ParkReason::kLongPrefill);
    return PartialStart::kParked;
  }
  const int32_t most = options_.max_partial_prefills;
  if (most > 0 && num_partial_prefills_ >= most) return PartialStart::kLater;
  return PartialStart::kNow;
}

// One a step is enough: it is looked at again in the step in which it is let go.
void Scheduler::UnparkLongPrefill() {
  RequestState* request = parked_.front(ParkReason::kLongPrefill);
  if (request == nullptr) return;
  if (num_long_partial_prefills_ < options_.max_long_partial_prefills) Unpark(request);
}

}  // namespace pagemill::scheduler
