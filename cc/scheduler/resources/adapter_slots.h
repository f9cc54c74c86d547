// File: cc/scheduler/resources/adapter_slots.h
// At most `max_adapters` different adapters among the running requests. A waiting request that
// needs one more is parked (ParkReason::kAdapterSlot), so that it does not block those behind it.
//
//   AdapterSlots slots(max_adapters);
//   if (!slots.CanStart(adapter)) slots.Wait(request);        // the caller parks it
//   slots.Start(adapter) ... slots.Stop(adapter)              // while it holds a request slot
//   slots.Wake(&awake);                                       // before each step
//
// An adapter that gets a slot wakes all that wait for it; a slot that is free wakes the oldest
// waiting request of each adapter, and the policy chooses among them. So that a stream of requests
// for the adapters at hand starves no other request: after kPatience starts that passed by a
// waiting request, the adapter with the fewest running requests is closed, none starts with it, and
// its slot comes free.
//
// Does not own the requests. Thread safety: none. CanStart, Start, Stop: O(log adapters). Wait,
// StopWaiting: O(log waiting). Wake: O(1) where nothing changed, else O(adapters + woken).
#ifndef PAGEMILL_CC_SCHEDULER_RESOURCES_ADAPTER_SLOTS_H_
#define PAGEMILL_CC_SCHEDULER_RESOURCES_ADAPTER_SLOTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "cc/base/status.h"
#include "cc/scheduler/request_state.h"

namespace pagemill::scheduler {

class AdapterSlots {
 public:
  static constexpr int32_t kPatience = 64;

  explicit AdapterSlots(int32_t max_adapters) : max_adapters_(max_adapters) {}

  // The model as it is needs no slot.
  bool CanStart(step::AdapterId adapter) const;
  void Start(step::AdapterId adapter);
  void Stop(step::AdapterId adapter);  // a running request ended, or was preempted or parked

  void Wait(RequestState* request);
  void StopWaiting(RequestState* request);  // only one that waits
  // A request that might have taken a slot is gone: others may be waiting behind it.
  void Forget(step::AdapterId adapter) { changed_ = changed_ || adapter != step::kNoAdapter; }
  // Appends those that may be able to start now; the caller calls StopWaiting() for each.
  void Wake(std::vector<RequestState*>* awake);

  size_t num_used() const { return running_.size(); }
  size_t num_waiting() const { return num_waiting_; }
  Status CheckIntegrity() const;

 private:
  struct Earlier {
    bool operator()(const RequestState* a, const RequestState* b) const {
      return a->arrival < b->arrival;
    }
  };
  bool full() const { return running_.size() >= static_cast<size_t>(max_adapters_); }

  const int32_t max_adapters_;
  std::map<step::AdapterId, int32_t> running_;  // requests that run with it, more than 0
  std::map<step::AdapterId, std::set<RequestState*, Earlier>> waiting_;  // none is empty
  size_t num_waiting_ = 0;
  int32_t num_passed_ = 0;  // starts while a request waited
  std::optional<step::AdapterId> closed_;
  bool changed_ = false;  // since the last Wake()
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_RESOURCES_ADAPTER_SLOTS_H_
