// File: cc/scheduler/internal/parking.h
// Parked requests, what each waits for, and which may continue: the lists by ParkReason, waits for
// adapter slots, encoder room and prefixes that a running request computes.
//
//   if (!parking.HasAdapterSlot(*request)) parking.Add(request, ParkReason::kAdapterSlot);
//   parking.Start(request, num_cached_tokens) ... parking.Stop(request)  // while it runs
//   for (RequestState* awake : parking.TakeAwake()) parking.Leave(awake);
//
// The caller takes requests out of queues and slots before Add(), and puts them into a queue after
// Leave(). Does not own the requests. Thread safety: none. Cost: adapter_slots.h,
// prefixes_in_flight.h; the lists are O(1).
#ifndef PAGEMILL_CC_SCHEDULER_INTERNAL_PARKING_H_
#define PAGEMILL_CC_SCHEDULER_INTERNAL_PARKING_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/scheduler/internal/parked_requests.h"
#include "cc/scheduler/internal/prefixes_in_flight.h"
#include "cc/scheduler/request_state.h"
#include "cc/scheduler/resources/adapter_slots.h"

namespace pagemill::scheduler::internal {

class Parking {
 public:
  struct Options {
    int32_t max_adapters = 0;
    size_t max_encoder_waiters = 0;  // all are looked at in each step
    int32_t block_size = 0;          // tokens
  };
  explicit Parking(const Options& options) : options_(options), adapters_(options.max_adapters) {}

  // The request that waits longest for this reason; null if none does.
  RequestState* front(ParkReason reason) const { return lists_.front(reason); }
  size_t size(ParkReason reason) const { return lists_.size(reason); }
  size_t size() const { return lists_.size(); }

  // Sets the request's status. Requests that wait for a prefix are added by AddBehind().
  void Add(RequestState* request, ParkReason reason);
  // Until `producer` has computed all blocks that the two share.
  void AddBehind(RequestState* producer, RequestState* request);
  // The status is then the caller's to set.
  void Leave(RequestState* request);

  bool HasAdapterSlot(const RequestState& request) const {
    return adapters_.CanStart(request.request->adapter);
  }
  bool HasEncoderPlace() const {
    return size(ParkReason::kEncoderBudget) < options_.max_encoder_waiters;
  }
  // The running request that computes what comes behind the first `num_cached_tokens` tokens of the
  // request; null if none does, or if the request does not read the prefix cache.
  RequestState* FindProducer(const RequestState& request, int32_t num_cached_tokens) const;

  // What running requests do. Each may wake others.
  void Start(RequestState* request, int32_t num_cached_tokens);
  // Its computed tokens are in the prefix cache.
  void Advance(RequestState* request) {
    if (request->announced_block >= 0) AdvancePrefix(request);  // in a decode step it is not
  }
  void Stop(RequestState* request);
  // A request ended that waited, in a queue or here.
  void Forget(const RequestState& request) { adapters_.Forget(request.request->adapter); }
  size_t num_running_adapters() const { return adapters_.num_used(); }
  void WakeForAdapters() { adapters_.Wake(&awake_); }

  // Those that need not wait any longer, in the order of waking. They are still parked.
  std::vector<RequestState*> TakeAwake() { return std::exchange(awake_, {}); }
  bool has_awake() const { return !awake_.empty(); }

  Status CheckIntegrity() const;

 private:
  void AdvancePrefix(RequestState* request);

  const Options options_;
  ParkedRequests lists_;
  AdapterSlots adapters_;
  PrefixesInFlight prefixes_;
  std::vector<RequestState*> awake_;
};

}  // namespace pagemill::scheduler::internal

#endif  // PAGEMILL_CC_SCHEDULER_INTERNAL_PARKING_H_
