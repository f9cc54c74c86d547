#include "cc/scheduler/request_queue.h"

namespace pagemill::scheduler {

void RequestQueue::Insert(RequestState* request) {
  // From both ends at once, until one of them is at the place.
  RequestState* predecessor = tail_;
  RequestState* successor = head_;
  while (predecessor != nullptr && predecessor->arrival > request->arrival &&
         successor->arrival < request->arrival) {
    predecessor = predecessor->queue_prev;
    successor = successor->queue_next;
  }
  if (predecessor == nullptr || predecessor->arrival < request->arrival) {
    successor = predecessor == nullptr ? head_ : predecessor->queue_next;
  } else {
    predecessor = successor->queue_prev;
  }
  request->queue_prev = predecessor;
  request->queue_next = successor;
  (predecessor == nullptr ? head_ : predecessor->queue_next) = request;
  (successor == nullptr ? tail_ : successor->queue_prev) = request;
  ++size_;
}

void RequestQueue::Remove(RequestState* request) {
  RequestState* predecessor = request->queue_prev;
  RequestState* successor = request->queue_next;
  (predecessor == nullptr ? head_ : predecessor->queue_next) = successor;
  (successor == nullptr ? tail_ : successor->queue_prev) = predecessor;
  request->queue_prev = nullptr;
  request->queue_next = nullptr;
  --size_;
}

Status RequestQueue::CheckIntegrity() const {
  size_t count = 0;
  const RequestState* before = nullptr;
  for (const RequestState* r = head_; r != nullptr; r = r->queue_next) {
    if (r->queue_prev != before) return Internal("request queue: broken back link");
    if (before != nullptr && before->arrival >= r->arrival) {
      return Internal("request queue: out of order");
    }
    if (++count > size_) return Internal("request queue: longer than its size");
    before = r;
  }
  if (before != tail_ || count != size_) return Internal("request queue: broken end");
  return OkStatus();
}

}  // namespace pagemill::scheduler
