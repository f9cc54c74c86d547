// File: cc/scheduler/request_queue.h
// Waiting requests in order of arrival: a doubly linked list through the requests themselves, so
// that an abort among 100,000 waiting ones costs what any other operation costs. Nothing is
// allocated.
//
//   RequestQueue queue;
//   queue.Insert(request);          // O(1) for the youngest and for the oldest of all
//   RequestState* next = queue.front();
//   queue.Remove(next);             // O(1)
//
// Does not own the requests. Thread safety: none.
#ifndef PAGEMILL_CC_SCHEDULER_REQUEST_QUEUE_H_
#define PAGEMILL_CC_SCHEDULER_REQUEST_QUEUE_H_

#include <cstddef>

#include "cc/base/status.h"
#include "cc/scheduler/request_state.h"

namespace pagemill::scheduler {

class RequestQueue {
 public:
  RequestState* front() const { return head_; }  // the oldest; null if empty
  size_t size() const { return size_; }

  // Puts the request where its arrival says. O(members that are older, or those that are younger,
  // whichever are fewer): a preempted request is older than nearly all that wait, and many that
  // were parked together come back one behind the other.
  void Insert(RequestState* request);
  void Remove(RequestState* request);  // only a member

  Status CheckIntegrity() const;

 private:
  RequestState* head_ = nullptr;
  RequestState* tail_ = nullptr;
  size_t size_ = 0;
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_REQUEST_QUEUE_H_
