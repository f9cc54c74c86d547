// File: cc/scheduler/policies/fcfs.h
// First come, first served. A preempted request is older than all that wait, so it comes back
// first; the youngest running request is preempted first.
#ifndef PAGEMILL_CC_SCHEDULER_POLICIES_FCFS_H_
#define PAGEMILL_CC_SCHEDULER_POLICIES_FCFS_H_

#include "cc/scheduler/policies/policy.h"
#include "cc/scheduler/request_queue.h"

namespace pagemill::scheduler {

class Fcfs final : public Policy {
 public:
  void Insert(RequestState* request) override { queue_.Insert(request); }
  void Remove(RequestState* request) override { queue_.Remove(request); }
  RequestState* Next() override { return queue_.front(); }
  Status CheckIntegrity() const override { return queue_.CheckIntegrity(); }

 private:
  RequestQueue queue_;
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_POLICIES_FCFS_H_
