// File: cc/scheduler/internal/prefixes_in_flight.h
// Which running request is computing which block next, so that others with the same prefix wait for
// it instead of computing it too. Only the first block that a request has not computed is kept: the
// prefix cache has those before it, so a request that wants more of the same prefix misses exactly
// there.
//
//   PrefixesInFlight prefixes;
//   prefixes.Announce(runner, /*block=*/0);             // it starts at its first block
//   RequestState* by = prefixes.FindProducer(*other, /*block=*/0);  // runner, where hashes agree
//
// One entry per request that is computing known tokens; each call is O(1), Wait() and what wakes
// O(waiting for that one request). Does not own the requests. Thread safety: none.
#ifndef PAGEMILL_CC_SCHEDULER_INTERNAL_PREFIXES_IN_FLIGHT_H_
#define PAGEMILL_CC_SCHEDULER_INTERNAL_PREFIXES_IN_FLIGHT_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/block_hash.h"
#include "cc/scheduler/request_state.h"

namespace pagemill::scheduler::internal {

class PrefixesInFlight {
 public:
  // Block number `block` is what `request` computes next. Ignored if it has no hash for that
  // block, or another request computes the same already.
  void Announce(RequestState* request, int32_t block);
  // The request that computes block number `block` of `request`; null if none does.
  RequestState* FindProducer(const RequestState& request, int32_t block) const;

  // `request` waits until `producer` has computed all blocks that the two share.
  void Wait(RequestState* request, RequestState* producer);
  void StopWaiting(RequestState* request);  // also if it does not wait

  // `producer` has computed its first `num_blocks` blocks and continues: appends to `awake` the
  // requests that need not wait for it any longer; all, if another one computes its next block.
  void Advance(RequestState* producer, int32_t num_blocks, std::vector<RequestState*>* awake);
  // `producer` does not run any longer: appends all requests that wait for it.
  void Withdraw(RequestState* producer, std::vector<RequestState*>* awake);

  Status CheckIntegrity() const;

 private:
  struct HashOfHash {  // the words of a hash are uniform as they are
    size_t operator()(const kv_cache::BlockHash& hash) const {
      return static_cast<size_t>(hash.words[0]);
    }
  };
  void Forget(RequestState* producer);

  std::unordered_map<kv_cache::BlockHash, RequestState*, HashOfHash> producers_;
};

}  // namespace pagemill::scheduler::internal

#endif  // PAGEMILL_CC_SCHEDULER_INTERNAL_PREFIXES_IN_FLIGHT_H_
