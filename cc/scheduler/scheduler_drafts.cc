// Draft tokens: lookahead tokens behind the last known one, of which the runner keeps what it would
// have sampled. They are run like other tokens but are not known ones: what is planned behind them
// counts on all of them until the result comes, and they enter the prefix cache only as accepted.
#include <algorithm>
#include <string>

#include "cc/scheduler/scheduler.h"

namespace pagemill::scheduler {

// How many of the proposed drafts the request verifies behind the `num_tokens` tokens that it gets
// in this step. Each of the `num_behind` running requests behind it keeps a token and a row.
int32_t Scheduler::NumDraftsToRun(const RequestState& request, int32_t num_tokens,
                                  int32_t num_behind, const Budget& budget) const {
  if (request.draft_token_ids.empty()) return 0;
  const int32_t end = request.num_scheduled_tokens + num_tokens;
  const int32_t in_flight = request.num_tokens_in_flight();
  if (end != request.num_tokens() + in_flight || !request.prompt_logprobs_done) return 0;
  const auto num_outputs = static_cast<int32_t>(request.output_token_ids.size()) + in_flight;
  // A step that accepts all of them gives one token more.
  int32_t n = std::min({static_cast<int32_t>(request.draft_token_ids.size()),
                        budget.tokens - num_tokens - num_behind, budget.rows - 1 - num_behind,
                        request.request->sampling.max_tokens - num_outputs - 1,
                        admission_.max_request_tokens() - end - 1});
  // Drafts take only blocks that no running request will need at once, and preempt no request.
  const auto reserved = static_cast<int32_t>(running_.size());
  while (n > 0 && !cache_.Covers(request.blocks, end + n) &&
         !cache_.CanAllocate(request.blocks, nullptr, end + n, reserved)) {
    --n;
  }
  return std::max(0, n);
}

// Of a request with drafts in flight. They preempt no other: blocks for `num_tokens` may be more
// than the request needs once some of them are rejected.
bool Scheduler::WaitsForRejections(const RequestState& request, int32_t num_tokens) const {
  return !cache_.Covers(request.blocks, num_tokens) &&
         !cache_.CanAllocate(request.blocks, nullptr, num_tokens);
}

// The drafts proposed behind the last known token, or places for those behind one in flight.
void Scheduler::PlaceDrafts(const RequestState& request, int32_t num_drafts,
                            step::ScheduledRequest* entry) {
  if (request.num_samples_in_flight > 0) {
    entry->draft_token_ids.assign(static_cast<size_t>(num_drafts), step::kPlaceholderTokenId);
  } else {
    entry->draft_token_ids.assign(request.draft_token_ids.begin(),
                                  request.draft_token_ids.begin() + num_drafts);
  }
}

// The answer to a step that asked to sample: accepted drafts, then one token more.
Status Scheduler::CheckSampled(const RequestState& request, const InFlightEntry& entry,
                               const step::RequestResult& result) const {
  const std::vector<int32_t>& tokens = result.sampled_token_ids;
  const int32_t num_verified = entry.num_drafts - result.num_missing_drafts;
  if (num_verified < 0 || num_verified > entry.num_drafts ||
      static_cast<int32_t>(tokens.size()) > num_verified + 1) {
    return Internal("the runner sampled " + std::to_string(tokens.size()) + " tokens behind " +
                    std::to_string(num_verified) + " of " + std::to_string(entry.num_drafts) +
                    " drafts");
  }
  const auto same = [](int32_t token, int32_t draft) {
    return token == draft || draft == step::kPlaceholderTokenId;
  };
  if (entry.knows_drafts &&
      !std::equal(tokens.begin(), tokens.end() - 1, request.draft_token_ids.begin(), same)) {
    return Internal("the runner accepted tokens that were not drafted");
  }
  for (const std::vector<int32_t>* ids : {&tokens, &result.draft_token_ids}) {
    for (int32_t token : *ids) {
      if (token == step::kPlaceholderTokenId && ids == &result.draft_token_ids) continue;
      if (token >= 0 && (options_.vocab_size == 0 || token < options_.vocab_size)) continue;
      return Internal("the runner " + std::string(ids == &tokens ? "sampled" : "drafted") +
                      " token " + std::to_string(token) + ", which is outside the vocabulary");
    }
  }
  return OkStatus();
}

// Of the drafts of the step, `num_verified` were run, and of those `num_accepted` became output:
// the rest was never there.
void Scheduler::SettleDrafts(RequestState* request, const InFlightEntry& entry,
                             int32_t num_verified, int32_t num_accepted) {
  if (entry.num_drafts == 0) return;
  request->num_drafts_in_flight -= entry.num_drafts;
  request->num_computed_tokens += num_accepted;
  request->num_scheduled_tokens -= entry.num_drafts - num_accepted;
  counters_.num_drafts += num_verified > 0;
  counters_.draft_tokens += static_cast<uint64_t>(num_verified);
  counters_.accepted_draft_tokens += static_cast<uint64_t>(num_accepted);
}

// Takes over what the runner proposes behind the token that it sampled. If a later step runs that
// token already, the proposal says how many drafts the step after it should have.
void Scheduler::ProposeDrafts(RequestState* request, std::vector<int32_t>&& draft_token_ids) {
  request->draft_token_ids.clear();
  if (options_.max_draft_tokens == 0) return;
  request->draft_token_ids = std::move(draft_token_ids);
  const auto most = static_cast<size_t>(options_.max_draft_tokens);
  if (request->draft_token_ids.size() > most) request->draft_token_ids.resize(most);
}

}  // namespace pagemill::scheduler
