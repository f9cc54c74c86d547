// File: cc/scheduler/internal/draft_accounts.h
// Draft tokens: lookahead tokens behind the last known one, of which the runner keeps what it would
// have sampled. They are run like other tokens but are not known ones: what is planned behind them
// counts on all of them until the result comes, and they enter the prefix cache only as accepted.
//
//   const int32_t n = drafts.NumToRun(request, num_tokens, room);
//   DraftAccounts::Place(request, n, &entry->draft_token_ids);
//   ... with the result: drafts.Settle(request, {...}); drafts.Propose(request, proposed) ...
//
// Borrows options, cache and counters. Thread safety: none. O(drafts of the request).
#ifndef PAGEMILL_CC_SCHEDULER_INTERNAL_DRAFT_ACCOUNTS_H_
#define PAGEMILL_CC_SCHEDULER_INTERNAL_DRAFT_ACCOUNTS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "cc/kv_cache/kv_cache_manager.h"
#include "cc/scheduler/request_state.h"
#include "cc/scheduler/scheduler_options.h"
#include "cc/scheduler/scheduler_stats.h"

namespace pagemill::scheduler::internal {

class DraftAccounts {
 public:
  struct Room {  // of the step, before the request's own tokens are taken
    int32_t tokens = 0;
    int32_t rows = 0;
    int32_t num_behind = 0;   // running requests behind it; each keeps a token and a row
    int32_t num_running = 0;  // each may need a block at once
  };
  struct Verified {
    int32_t num_planned = 0;
    int32_t num_verified = 0;  // of those, the others had no token
    int32_t num_accepted = 0;  // of those, became output
  };

  DraftAccounts(const SchedulerOptions& options, int32_t max_request_tokens,
                kv_cache::KvCacheManager* cache, SchedulerStats* counters)
      : options_(options),
        max_request_tokens_(max_request_tokens),
        cache_(*cache),
        counters_(*counters) {}

  // How many of the proposed drafts the request verifies behind the `num_tokens` tokens that it
  // gets in this step.
  int32_t NumToRun(const RequestState& request, int32_t num_tokens, const Room& room) const {
    return request.draft_token_ids.empty() ? 0 : NumThatFit(request, num_tokens, room);
  }
  // For a request with drafts in flight. They preempt no other: blocks for `num_tokens` may be more
  // than the request needs once some of them are rejected.
  bool WaitsForRejections(const RequestState& request, int32_t num_tokens) const;
  // Replaces `draft_token_ids` by the drafts proposed behind the last known token, or placeholders
  // for those behind one in flight.
  static void Place(const RequestState& request, int32_t num_drafts,
                    std::vector<int32_t>* draft_token_ids);
  // The drafts of a step are in flight no longer.
  void Settle(RequestState* request, const Verified& verified) {
    if (verified.num_planned > 0) SettleDrafts(request, verified);
  }
  // Takes over what the runner proposes behind the token that it sampled. If a later step runs that
  // token already, the proposal says how many drafts the step after it should have.
  void Propose(RequestState* request, std::vector<int32_t>&& draft_token_ids) const {
    if (options_.max_draft_tokens > 0) Keep(request, std::move(draft_token_ids));
  }

 private:
  int32_t NumThatFit(const RequestState& request, int32_t num_tokens, const Room& room) const;
  void SettleDrafts(RequestState* request, const Verified& verified);
  void Keep(RequestState* request, std::vector<int32_t>&& draft_token_ids) const;

  const SchedulerOptions& options_;
  const int32_t max_request_tokens_;
  kv_cache::KvCacheManager& cache_;
  SchedulerStats& counters_;
};

}  // namespace pagemill::scheduler::internal

#endif  // PAGEMILL_CC_SCHEDULER_INTERNAL_DRAFT_ACCOUNTS_H_
