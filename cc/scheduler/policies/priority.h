// File: cc/scheduler/policies/priority.h
// The smallest Request::priority first, among equals first come, first served. Running requests
// follow the same order, so the worst and youngest is preempted when blocks run out, and a waiting
// request stops a running one of worse priority rather than wait for its slot or its blocks.
// Requests of bad priority may wait for ever: that is what was asked for.
//
// Insert() and Remove() cost O(log waiting), Next() O(1).
#ifndef PAGEMILL_CC_SCHEDULER_POLICIES_PRIORITY_H_
#define PAGEMILL_CC_SCHEDULER_POLICIES_PRIORITY_H_

#include <set>

#include "cc/scheduler/policies/policy.h"

namespace pagemill::scheduler {

class Priority final : public Policy {
 public:
  void Insert(RequestState* request) override { waiting_.insert(request); }
  void Remove(RequestState* request) override { waiting_.erase(request); }
  RequestState* Next() override { return waiting_.empty() ? nullptr : *waiting_.begin(); }
  bool RunsBefore(const RequestState& a, const RequestState& b) const override;
  bool Preempts(const RequestState& waiting, const RequestState& running) const override;
  bool uses_priority() const override { return true; }

 private:
  struct Earlier {
    bool operator()(const RequestState* a, const RequestState* b) const;
  };
  std::set<RequestState*, Earlier> waiting_;
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_POLICIES_PRIORITY_H_
