// File: cc/scheduler/admission/admission.h
// What decides whether a request gets in, and for how long it may stay: the checks of a request
// alone, the account of the queue, and deadlines.
//
//   Admission admission(options, cache);
//   PAGEMILL_RETURN_IF_ERROR(admission.Check(request, /*entered=*/false));
//   admission.Enter(state, std::nullopt);
//   admission.Start(state);               // its first start
//   while (RequestState* late = admission.Expired(now_us)) ... admission.Leave(late) ...
//
// Does not own the requests. Thread safety: none, except request_check() and queue().
#ifndef PAGEMILL_CC_SCHEDULER_ADMISSION_ADMISSION_H_
#define PAGEMILL_CC_SCHEDULER_ADMISSION_ADMISSION_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cc/base/status.h"
#include "cc/kv_cache/kv_cache_manager.h"
#include "cc/scheduler/admission/deadline_queue.h"
#include "cc/scheduler/admission/queue_admission.h"
#include "cc/scheduler/admission/request_check.h"
#include "cc/scheduler/request_state.h"
#include "cc/scheduler/scheduler_options.h"

namespace pagemill::scheduler {

class Admission {
 public:
  // `options` are valid.
  Admission(const SchedulerOptions& options, const kv_cache::KvCacheManager& cache)
      : request_check_(options, cache), queue_(options) {}

  const RequestCheck& request_check() const { return request_check_; }
  QueueAdmission& queue() { return queue_; }

  // kInvalidArgument, kUnimplemented: RequestCheck. kResourceExhausted: QueueAdmission, which is
  // not consulted if the request has `entered` the queue.
  Status Check(const step::Request& request, bool entered) const;

  // A request that passed the check. Without a ticket it enters the queue now.
  void Enter(RequestState* request, const std::optional<QueueTicket>& ticket);
  void Start(RequestState* request);  // only the first start
  void Leave(RequestState* request);  // exactly once

  // The request whose deadline passed first; null if none has.
  RequestState* Expired(int64_t now_us) const { return deadlines_.Expired(now_us); }
  std::optional<int64_t> next_deadline_us() const { return deadlines_.next_time_us(); }
  int64_t num_started() const { return num_started_; }  // and not left

  Status CheckIntegrity(size_t num_with_deadline, int64_t num_started) const;

 private:
  const RequestCheck request_check_;
  QueueAdmission queue_;
  DeadlineQueue deadlines_;
  int64_t num_started_ = 0;
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_ADMISSION_ADMISSION_H_
