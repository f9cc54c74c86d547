#include "cc/scheduler/internal/parked_requests.h"

#include <string>

namespace pagemill::scheduler::internal {

void ParkedRequests::Add(RequestState* request, ParkReason reason) {
  List& list = lists_[static_cast<size_t>(reason)];
  request->status = RequestStatus::kParked;
  request->park_reason = reason;
  request->queue_prev = list.tail;
  request->queue_next = nullptr;
  (list.tail == nullptr ? list.head : list.tail->queue_next) = request;
  list.tail = request;
  ++list.size;
  ++size_;
}

void ParkedRequests::Remove(RequestState* request) {
  List& list = lists_[static_cast<size_t>(request->park_reason)];
  RequestState* before = request->queue_prev;
  RequestState* behind = request->queue_next;
  (before == nullptr ? list.head : before->queue_next) = behind;
  (behind == nullptr ? list.tail : behind->queue_prev) = before;
  request->queue_prev = nullptr;
  request->queue_next = nullptr;
  --list.size;
  --size_;
}

Status ParkedRequests::CheckIntegrity() const {
  size_t total = 0;
  for (size_t i = 0; i < kNumParkReasons; ++i) {
    const auto reason = static_cast<ParkReason>(i);
    const RequestState* before = nullptr;
    size_t count = 0;
    for (const RequestState* r = lists_[i].head; r != nullptr; r = r->queue_next) {
      if (r->queue_prev != before || r->status != RequestStatus::kParked ||
          r->park_reason != reason || ++count > lists_[i].size) {
        return Internal("parked requests: the list \"" + std::string(ParkReasonName(reason)) +
                        "\" is broken");
      }
      before = r;
    }
    if (before != lists_[i].tail || count != lists_[i].size) {
      return Internal("parked requests: the list \"" + std::string(ParkReasonName(reason)) +
                      "\" has a broken end");
    }
    total += count;
  }
  return total == size_ ? OkStatus() : Internal("parked requests: the total is wrong");
}

}  // namespace pagemill::scheduler::internal
