// File: cc/scheduler/internal/parked_requests.h
// Parked requests, one list per reason in the order in which they came, through the links of the
// requests themselves. Nothing is allocated; every call is O(1).
//
//   ParkedRequests parked;
//   parked.Add(request, ParkReason::kHeld);
//   while (RequestState* next = parked.front(ParkReason::kHeld)) parked.Remove(next);
//
// Does not own the requests. Thread safety: none.
#ifndef PAGEMILL_CC_SCHEDULER_INTERNAL_PARKED_REQUESTS_H_
#define PAGEMILL_CC_SCHEDULER_INTERNAL_PARKED_REQUESTS_H_

#include <array>
#include <cstddef>

#include "cc/base/status.h"
#include "cc/scheduler/park_reason.h"
#include "cc/scheduler/request_state.h"

namespace pagemill::scheduler::internal {

class ParkedRequests {
 public:
  // The request that waits longest for this reason; null if none does. The next one is its
  // `queue_next`.
  RequestState* front(ParkReason reason) const { return list(reason).head; }
  size_t size(ParkReason reason) const { return list(reason).size; }
  size_t size() const { return size_; }

  // The request is in no list. Sets its status and reason.
  void Add(RequestState* request, ParkReason reason);
  // Takes a parked request out; its status is then for the caller to set.
  void Remove(RequestState* request);

  Status CheckIntegrity() const;

 private:
  struct List {
    RequestState* head = nullptr;
    RequestState* tail = nullptr;
    size_t size = 0;
  };
  const List& list(ParkReason reason) const { return lists_[static_cast<size_t>(reason)]; }

  std::array<List, kNumParkReasons> lists_;
  size_t size_ = 0;
};

}  // namespace pagemill::scheduler::internal

#endif  // PAGEMILL_CC_SCHEDULER_INTERNAL_PARKED_REQUESTS_H_
