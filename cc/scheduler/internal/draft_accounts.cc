#include "cc/scheduler/internal/draft_accounts.h"

#include <algorithm>
#include <utility>

#include "cc/step/step_plan.h"

namespace pagemill::scheduler::internal {

int32_t DraftAccounts::NumThatFit(const RequestState& request, int32_t num_tokens,
                                  const Room& room) const {
  const int32_t end = request.num_scheduled_tokens + num_tokens;
  const int32_t in_flight = request.num_tokens_in_flight();
  if (end != request.num_tokens() + in_flight || !request.prompt_logprobs_done) return 0;
  const auto num_outputs = static_cast<int32_t>(request.output_token_ids.size()) + in_flight;
  // A step that accepts all of them gives one token more.
  int32_t n = std::min({static_cast<int32_t>(request.draft_token_ids.size()),
                        room.tokens - num_tokens - room.num_behind, room.rows - 1 - room.num_behind,
                        request.max_tokens - num_outputs - 1,
                        max_request_tokens_ - end - 1});
  // Drafts take only blocks that no running request will need at once, and preempt no request.
  while (n > 0 && !cache_.Covers(request.blocks, end + n) &&
         !cache_.CanAllocate(request.blocks, nullptr, end + n, room.num_running)) {
    --n;
  }
  return std::max(0, n);
}

bool DraftAccounts::WaitsForRejections(const RequestState& request, int32_t num_tokens) const {
  return !cache_.Covers(request.blocks, num_tokens) &&
         !cache_.CanAllocate(request.blocks, nullptr, num_tokens);
}

void DraftAccounts::Place(const RequestState& request, int32_t num_drafts,
                          std::vector<int32_t>* draft_token_ids) {
  if (request.num_samples_in_flight > 0) {
    draft_token_ids->assign(static_cast<size_t>(num_drafts), step::kPlaceholderTokenId);
  } else {
    draft_token_ids->assign(request.draft_token_ids.begin(),
                            request.draft_token_ids.begin() + num_drafts);
  }
}

void DraftAccounts::SettleDrafts(RequestState* request, const Verified& verified) {
  request->num_drafts_in_flight -= verified.num_planned;
  request->num_computed_tokens += verified.num_accepted;
  request->num_scheduled_tokens -= verified.num_planned - verified.num_accepted;
  counters_.num_drafts += verified.num_verified > 0;
  counters_.draft_tokens += static_cast<uint64_t>(verified.num_verified);
  counters_.accepted_draft_tokens += static_cast<uint64_t>(verified.num_accepted);
  std::vector<uint64_t>& by_position = counters_.accepted_drafts_by_position;
  const auto num_accepted = static_cast<size_t>(verified.num_accepted);
  if (num_accepted > by_position.size()) by_position.resize(num_accepted);
  for (size_t i = 0; i < num_accepted; ++i) ++by_position[i];
  request->num_draft_steps += verified.num_verified > 0;
  request->num_verified_drafts += verified.num_verified;
  request->num_accepted_drafts += verified.num_accepted;
}

void DraftAccounts::Keep(RequestState* request, std::vector<int32_t>&& draft_token_ids) const {
  request->draft_token_ids = std::move(draft_token_ids);
  const auto most = static_cast<size_t>(options_.max_draft_tokens);
  if (request->draft_token_ids.size() > most) request->draft_token_ids.resize(most);
}

}  // namespace pagemill::scheduler::internal
