// File: cc/scheduler/admission/queue_admission.h
// Is there room for one more request in the queue, and will it start in time? Keeps account of the
// requests that wait and run, and refuses by value, with the time after which a retry makes sense.
// RequestCheck says whether a request can ever run; this says whether it can be taken now.
//
//   QueueAdmission queue(options);
//   PAGEMILL_RETURN_IF_ERROR(queue.Check(request, now_us));  // with retry_after_s()
//   const QueueTicket ticket = queue.Enter(request);
//   ... queue.Start(&ticket) when it first gets a slot, queue.Leave(ticket) when it ends ...
//
// A scheduler has an account of the requests that its host adds. A host that answers its clients on
// other threads keeps an account of its own, under its lock, and adds requests with
// QueueAccount::kHost: then only the host's counts them.
//
// A request counts as waiting until its first start; one that was preempted does not count again.
// What is ahead of a request depends on the policy: all that wait (fcfs), those of no worse
// priority (priority), or its tenant's own, stretched by the others' share (fair).
//
// Thread safety: none. Enter, Start, Leave: O(log priorities). Check: O(priorities + weights).
#ifndef PAGEMILL_CC_SCHEDULER_ADMISSION_QUEUE_ADMISSION_H_
#define PAGEMILL_CC_SCHEDULER_ADMISSION_QUEUE_ADMISSION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "cc/base/status.h"
#include "cc/scheduler/admission/queue_ticket.h"
#include "cc/scheduler/admission/wait_estimator.h"
#include "cc/scheduler/scheduler_options.h"
#include "cc/step/request.h"

namespace pagemill::scheduler {

class QueueAdmission {
 public:
  // `options` are valid.
  explicit QueueAdmission(const SchedulerOptions& options);

  // The part of Check() that needs no request: kResourceExhausted if the queue is full, so that no
  // request would be accepted. O(1).
  Status CheckRoom() const;
  // kResourceExhausted: the queue, the tenant's part of it, or the bound on waiting tokens is full,
  // or the request would probably start after its start deadline. The last is not checked without
  // `now_us`, the time on the clock of Request::start_deadline_us.
  Status Check(const step::Request& request, std::optional<int64_t> now_us) const;

  QueueTicket Enter(const step::Request& request);
  void Start(QueueTicket* ticket);        // its later starts change nothing
  void Leave(const QueueTicket& ticket);  // exactly once

  WaitEstimator& estimator() { return estimator_; }
  // Estimated for a request that arrives now; empty if no step was observed yet.
  std::optional<int64_t> WaitMicros(const step::Request& request) const;
  int64_t num_waiting() const { return waiting_.requests; }
  int64_t num_waiting_tokens() const { return waiting_.prompt_tokens; }

  // Do the accounts by priority and by tenant add up?
  Status CheckIntegrity() const;

 private:
  struct Waiting {
    int64_t requests = 0;
    int64_t prompt_tokens = 0;
  };
  struct Class {  // requests of one priority
    Waiting waiting;
    int64_t running = 0;
  };
  struct Tenant {
    Waiting waiting;
    int64_t unfinished = 0;
  };

  WorkAhead Ahead(const step::Request& request) const;
  Waiting AheadByShare(const std::string& tenant) const;
  int64_t Weight(const std::string& tenant) const;
  Status Refuse(const std::string& why, const WorkAhead& until_retry) const;
  Status CheckStart(const step::Request& request, int64_t now_us) const;

  const int64_t max_num_seqs_;
  const int64_t max_waiting_requests_;
  const int64_t max_waiting_tokens_;
  const int64_t max_waiting_per_tenant_;
  const TenantWeights weights_;
  bool by_priority_;
  bool by_share_;

  Waiting waiting_;
  int64_t num_unfinished_ = 0;
  std::map<int32_t, Class> priorities_;
  std::unordered_map<std::string, Tenant> tenants_;
  int64_t waiting_weight_ = 0;  // sum of the weights of tenants with waiting requests
  WaitEstimator estimator_;
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_ADMISSION_QUEUE_ADMISSION_H_
