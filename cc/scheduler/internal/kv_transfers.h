// File: cc/scheduler/internal/kv_transfers.h
// Transfers that a scheduler has planned and whose results it does not have yet, and the loads that
// requests wait for. Bookkeeping only: what it means for requests and blocks is in
// load_coordinator.cc.
//
//   KvTransfers transfers(/*most_abandoned=*/3);
//   transfers.Plan(std::move(transfer), load, fence);   // gives it an id
//   transfers.Take(oldest_step_in_flight, &out);        // for the worker
//   transfers.End(id);                                  // its result is in
//
// A load may start only when the steps that were in flight when it was planned are done: its pages
// may have belonged to a request of such a step, which still writes to them.
//
// Thread safety: none.
#ifndef PAGEMILL_CC_SCHEDULER_INTERNAL_KV_TRANSFERS_H_
#define PAGEMILL_CC_SCHEDULER_INTERNAL_KV_TRANSFERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/request_blocks.h"
#include "cc/kv_cache/transfer.h"
#include "cc/scheduler/request_state.h"

namespace pagemill::scheduler::internal {

// Blocks on their way to a request. They belong to the load, not to the request, until all its
// transfers have ended: the request may be gone by then.
struct KvLoad {
  RequestState* request = nullptr;  // the one that waits; null if it no longer does
  kv_cache::RequestBlocks blocks;
  int32_t first_token = 0;  // the load brings the tokens [first_token, end_token)
  int32_t end_token = 0;
  std::vector<kv_cache::BlockContent> missing;  // the first one of each transfer that fell short
  std::vector<kv_cache::TransferId> transfers;  // that have not ended
};

class KvTransfers {
 public:
  // More than `most_abandoned` abandoned transfers in flight with one peer: it hangs.
  explicit KvTransfers(size_t most_abandoned) : most_abandoned_(most_abandoned) {}

  struct InFlight {
    kv_cache::KvTransfer transfer;
    KvLoad* load = nullptr;  // of kLoad
    uint64_t fence = 0;      // starts when no step up to this one is in flight
    bool taken = false;
    bool abandoned = false;  // it took too long; no request waits for it
  };

  // The load is owned here until it is dropped.
  KvLoad* AddLoad(KvLoad load);
  void DropLoad(const KvLoad* load);
  // What `request` waits for; null if it waits for nothing.
  KvLoad* FindLoad(const RequestState& request);

  void Plan(kv_cache::KvTransfer transfer, KvLoad* load, uint64_t fence);
  // Appends what may start, in the order of planning. Steps before `oldest_step` are done.
  void Take(uint64_t oldest_step, std::vector<kv_cache::KvTransfer>* out);
  InFlight* Find(kv_cache::TransferId id);  // null if it is not in flight, or not taken
  void End(kv_cache::TransferId id);        // forgets it

  bool empty() const { return in_flight_.empty(); }
  size_t size() const { return in_flight_.size(); }
  const std::vector<std::unique_ptr<KvLoad>>& loads() const { return loads_; }
  // So many transfers in flight are abandoned that a new one is likely to be.
  // Counted by peer, "" for those without one: an engine that is gone hinders no other.
  bool hangs(std::string_view peer) const;
  void Abandon(InFlight* entry);
  size_t num_abandoned() const;  // transfers in flight that are abandoned
  int32_t num_held_blocks() const { return num_held_blocks_; }  // by kSend in flight

  Status CheckIntegrity() const;

 private:
  const size_t most_abandoned_;
  std::map<kv_cache::TransferId, InFlight> in_flight_;
  std::vector<kv_cache::TransferId> planned_;  // not taken yet
  std::vector<std::unique_ptr<KvLoad>> loads_;
  std::map<std::string, size_t, std::less<>> abandoned_;  // how many, by peer
  int32_t num_held_blocks_ = 0;
  uint64_t num_transfers_ = 0;  // ever
};

}  // namespace pagemill::scheduler::internal

#endif  // PAGEMILL_CC_SCHEDULER_INTERNAL_KV_TRANSFERS_H_
