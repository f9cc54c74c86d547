// File: cc/scheduler/admission/deadline_queue.h
// Requests with deadlines, the next one to pass first: until its first start that may be the
// request's start deadline, afterwards it is the deadline of its end.
//
//   DeadlineQueue deadlines;
//   deadlines.Insert(request);                      // O(log n); requests without any cost nothing
//   while (RequestState* late = deadlines.Expired(now_us)) ... deadlines.Remove(late) ...
//
// Times are microseconds of the caller's clock; equal ones are in order of arrival. Does not own
// the requests. Thread safety: none.
#ifndef PAGEMILL_CC_SCHEDULER_ADMISSION_DEADLINE_QUEUE_H_
#define PAGEMILL_CC_SCHEDULER_ADMISSION_DEADLINE_QUEUE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <tuple>

#include "cc/scheduler/request_state.h"

namespace pagemill::scheduler {

class DeadlineQueue {
 public:
  void Insert(RequestState* request);
  void Start(RequestState* request);   // its start deadline counts no more
  void Remove(RequestState* request);  // also where it is not in it
  // The one whose deadline passed first; null if none has.
  RequestState* Expired(int64_t now_us) const;
  // When the next deadline passes; empty if there is none.
  std::optional<int64_t> next_time_us() const;
  size_t size() const { return queue_.size(); }

 private:
  struct Entry {
    int64_t time_us;
    uint64_t arrival;
    RequestState* request;
    bool operator<(const Entry& other) const {
      return std::tie(time_us, arrival) < std::tie(other.time_us, other.arrival);
    }
  };
  void InsertAt(RequestState* request, int64_t time_us);

  std::set<Entry> queue_;
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_ADMISSION_DEADLINE_QUEUE_H_
