// File: cc/engine/kv_tiers.h
// The engine's side of KV that lives elsewhere: a connector for the scheduler, a worker that
// copies, and the traffic between the two. Transfers run beside the steps; no call here waits for
// one but Wait().
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<KvTiers> tiers,
//                       KvTiers::Create(options.kv_tiers, cache_options, runner->pages(), clock,
//                                       log));
//   PAGEMILL_RETURN_IF_ERROR(scheduler->SetConnector(tiers->connector()));
//   ... before and after each Schedule(): tiers->Move(scheduler) ...
//
// Cost of Move() without transfers under way: a comparison. Thread safety: none; the worker's
// threads are its own.
#ifndef PAGEMILL_CC_ENGINE_KV_TIERS_H_
#define PAGEMILL_CC_ENGINE_KV_TIERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cc/base/clock.h"
#include "cc/base/log_sink.h"
#include "cc/base/status.h"
#include "cc/base/xxh3.h"
#include "cc/engine/kv_tier_options.h"
#include "cc/kv_cache/connector.h"
#include "cc/kv_cache/kv_cache_options.h"
#include "cc/kv_cache/transfer.h"
#include "cc/scheduler/scheduler.h"
#include "cc/step/page_store.h"

namespace pagemill::engine {

class KvTiers {
 public:
  // `options` are valid. `pages`, null if the runner has none, and `clock` outlive the result.
  // kUnimplemented without pages, kInvalidArgument if sizes or paths make no sense,
  // kResourceExhausted if there is no room for them; errors of KvDigest().
  static StatusOr<std::unique_ptr<KvTiers>> Create(const KvTierOptions& options,
                                                   const kv_cache::KvCacheOptions& cache,
                                                   step::PageStore* pages, const Clock* clock,
                                                   LogSink log);

  kv_cache::KvConnector* connector() const { return connector_; }

  // Hands results to the scheduler and its new transfers to the worker, and abandons those that
  // take too long. True if there were results.
  bool Move(scheduler::Scheduler* scheduler);
  // Returns when a result is there, or after the timeout.
  void Wait(int64_t timeout_us) { worker_->Wait(timeout_us); }
  // Waits for the copies that are being made, since they use the runner's pages, and hands their
  // results to the scheduler. The engine's own worker drops the others; that of a host is waited
  // for until they end, at most for the transfer timeout. Nothing is moved afterwards.
  void Close(scheduler::Scheduler* scheduler);

 private:
  KvTiers(const KvTierOptions& options, const Clock* clock, LogSink log);
  Status AddTiers(const KvTierOptions& options, const kv_cache::KvCacheOptions& cache,
                  step::PageStore* pages);
  Status AddHandover(const KvTierOptions& options, const kv_cache::KvCacheOptions& cache,
                     step::PageStore* pages);
  Status AddFolder(const KvTierOptions& options, const kv_cache::KvCacheOptions& cache,
                   step::PageStore* pages);
  bool TakeResults(scheduler::Scheduler* scheduler);
  void Start(scheduler::Scheduler* scheduler, bool only_forgets);
  void DrainHostsWorker(scheduler::Scheduler* scheduler);
  void AbandonLate(scheduler::Scheduler* scheduler);
  void LogFailure(const Status& why);

  const int64_t timeout_ns_;
  const Clock* const clock_;
  const LogSink log_;
  std::unique_ptr<kv_cache::KvConnector> owned_connector_;  // null if the host has one
  std::unique_ptr<kv_cache::TransferWorker> owned_worker_;  // the same
  kv_cache::KvConnector* connector_;
  kv_cache::TransferWorker* worker_;  // null when closed
  // Transfers under way; when they were started, in clock ns.
  std::map<kv_cache::TransferId, int64_t> started_;
  std::set<kv_cache::TransferId> abandoned_;         // the same, but no request waits for them
  std::vector<kv_cache::KvTransfer> transfers_;      // during Move()
  std::vector<kv_cache::KvTransferResult> results_;  // during Move()
  int64_t last_log_ns_ = INT64_MIN;
};

// What names KV of `options` in files: their fingerprint, which is computed, and what the pages
// are. Not OK if the fingerprint is not.
StatusOr<Digest128> KvDigest(const KvTierOptions& options, int32_t block_size);

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_KV_TIERS_H_
