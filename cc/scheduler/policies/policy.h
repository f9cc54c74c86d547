// File: cc/scheduler/policies/policy.h
// Which waiting request starts next, and which running one is preempted. One implementation per
// policy; policies.cc has the table.
#ifndef PAGEMILL_CC_SCHEDULER_POLICIES_POLICY_H_
#define PAGEMILL_CC_SCHEDULER_POLICIES_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/base/status.h"
#include "cc/scheduler/request_state.h"

namespace pagemill::scheduler {

// Obligations of an implementer:
// 1. Insert() takes a request, new or preempted, into the queue; Remove() takes a member out.
// 2. Next() is the member to start first, null if there is none; it stays a member.
// 3. Decisions depend on the calls made, on nothing else: no time, no randomness, no addresses.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual void Insert(RequestState* request) = 0;
  virtual void Remove(RequestState* request) = 0;
  virtual RequestState* Next() = 0;

  // Which of `running` loses its blocks for the first of them: an index into it. Not empty, in the
  // order in which they run, and none of them has a place in the current step yet.
  virtual size_t Victim(std::span<RequestState* const> running) const { return running.size() - 1; }
  // Does `a`, which starts, get its tokens before `b`, which runs? Otherwise the order is that of
  // the starts. A strict weak order.
  virtual bool RunsBefore(const RequestState& /*a*/, const RequestState& /*b*/) const {
    return false;
  }
  // May `running`, the last in running order, be stopped so that `waiting`, which is Next() and
  // finds no slot or no blocks, starts? Implies RunsBefore(waiting, running).
  virtual bool Preempts(const RequestState& /*waiting*/, const RequestState& /*running*/) const {
    return false;
  }
  // `num_tokens` more tokens of the request were served: its prompt with its first start, then what
  // it generates. Called where charges() says so.
  virtual void Charge(const RequestState& /*request*/, int32_t /*num_tokens*/) {}
  virtual bool charges() const { return false; }
  // The request ended; it is not a member any more, and may never have been one. Called once for
  // each.
  virtual void Forget(const RequestState& /*request*/) {}
  // Does it order by Request::priority? Otherwise a request with one is refused.
  virtual bool uses_priority() const { return false; }
  virtual Status CheckIntegrity() const { return OkStatus(); }
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_POLICIES_POLICY_H_
