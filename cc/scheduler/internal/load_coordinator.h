// File: cc/scheduler/internal/load_coordinator.h
// KV that comes from elsewhere and goes elsewhere (docs/kv_tiers.md): asks the connector for what a
// request lacks, loads it before the request starts, and offers it what was computed. No step waits
// for a transfer.
//
//   if (const auto reason = loads.Fetch(request, match, promised, num_plans)) ...park it...
//   loads.OfferStores(request, num_committed_before); loads.PlanStores();
//   loads.Take(steps.oldest_step(), &transfers);             // for the worker
//   loads.Finish(results);
//   for (RequestState* request : loads.TakeAwake()) ...it need not wait any longer...
//
// The blocks of a load belong to the load until all its transfers have ended: the request may be
// gone by then. What came enters the prefix cache, where the request finds it when it starts.
//
// Borrows the cache and the counters; does not own the requests. Thread safety: none.
#ifndef PAGEMILL_CC_SCHEDULER_INTERNAL_LOAD_COORDINATOR_H_
#define PAGEMILL_CC_SCHEDULER_INTERNAL_LOAD_COORDINATOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/connector.h"
#include "cc/kv_cache/kv_cache_manager.h"
#include "cc/scheduler/internal/kv_transfers.h"
#include "cc/scheduler/internal/parking.h"
#include "cc/scheduler/request_state.h"
#include "cc/scheduler/scheduler_stats.h"

namespace pagemill::scheduler::internal {

class LoadCoordinator {
 public:
  // The connector is not used while more than `most_abandoned` abandoned transfers are under way;
  // those with a peer stop only what comes from this peer.
  LoadCoordinator(const kv_cache::KvCacheOptions& options, size_t most_abandoned,
                  kv_cache::KvCacheManager* cache, SchedulerStats* counters)
      : options_(options), cache_(*cache), counters_(*counters), transfers_(most_abandoned) {}

  // Scheduler::SetConnector().
  Status SetConnector(kv_cache::KvConnector* connector);
  bool has_connector() const { return connector_ != nullptr; }

  // Asks for what comes behind the request's cached prefix. A reason: the request is to be parked
  // for it, because the answer is not known yet or because its blocks are on their way, which start
  // when no step up to `num_plans` is in flight. `promised` blocks of the pool are others'.
  std::optional<ParkReason> Fetch(RequestState* request, const kv_cache::PrefixMatch& match,
                                  int32_t promised, uint64_t num_plans);
  // The request ends while its blocks are on their way: they are free when the load has ended.
  void Detach(const RequestState& request);

  // The request ends by itself and still has its blocks, which the connector may hold. Returns what
  // its client gets.
  step::KvTransferParams RequestFinished(const RequestState& request);

  // Notes the blocks that the request filled since `num_tokens` of its tokens were committed.
  void OfferStores(const RequestState& request, int32_t num_tokens);
  // Plans stores of what was noted.
  void PlanStores();

  // Appends the transfers that may start: steps before `oldest_step` are done.
  void Take(uint64_t oldest_step, std::vector<kv_cache::KvTransfer>* transfers) {
    if (!transfers_.empty()) transfers_.Take(oldest_step, transfers);
  }
  void Finish(std::span<const kv_cache::KvTransferResult> results);
  // False if there is no such transfer, or it was abandoned before.
  bool Abandon(kv_cache::TransferId id);
  // False if the connector cannot forget what it has.
  bool Reset();

  // Parked requests whose loads ended since the last call.
  std::vector<RequestState*> TakeAwake() { return std::exchange(awake_, {}); }
  size_t num_in_flight() const { return transfers_.size(); }
  // Appends what loads hold.
  Status CheckIntegrity(const Parking& parking,
                        std::vector<const kv_cache::RequestBlocks*>* holders) const;

 private:
  struct Source {
    int32_t end_token = 0;
    kv_cache::Handover handover;
    uint64_t fence = 0;  // of KvTransfers::Plan()
  };
  void StartLoad(RequestState* request, const kv_cache::PrefixMatch& match, Source source);
  void Plan(std::vector<kv_cache::KvTransfer>* planned, KvLoad* load, uint64_t fence);
  int32_t NumLoadedTokens(const KvLoad& load) const;
  void EndLoad(KvLoad* load);

  const kv_cache::KvCacheOptions options_;
  kv_cache::KvCacheManager& cache_;
  SchedulerStats& counters_;
  kv_cache::KvConnector* connector_ = nullptr;
  KvTransfers transfers_;
  std::vector<kv_cache::BlockContent> to_store_;  // during a call: filled blocks
  std::vector<RequestState*> awake_;
};

}  // namespace pagemill::scheduler::internal

#endif  // PAGEMILL_CC_SCHEDULER_INTERNAL_LOAD_COORDINATOR_H_
