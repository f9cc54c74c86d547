// File: cc/scheduler/internal/steps_in_flight.h
// Plans whose results are not in, the oldest first, and what each asked of its requests.
//
//   StepsInFlight steps;
//   steps.Begin();
//   steps.Add({.index = index, ...});        // for each entry of the plan
//   plan->step_id = steps.Commit();          // unless the plan is empty
//   std::optional<PlannedStep> step = steps.TakeOldest();
//   ... steps.Recycle(std::move(*step)) ...  // its memory serves a later plan
//
// Thread safety: none.
#ifndef PAGEMILL_CC_SCHEDULER_INTERNAL_STEPS_IN_FLIGHT_H_
#define PAGEMILL_CC_SCHEDULER_INTERNAL_STEPS_IN_FLIGHT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "cc/step/request.h"

namespace pagemill::scheduler::internal {

struct PlannedEntry {
  step::RequestIndex index;
  uint32_t generation;  // of the slot
  int32_t num_tokens;   // without drafts
  int32_t num_drafts;
  bool knows_drafts;  // they are those that the request has until the result comes
  bool sample;
  bool prompt_logprobs;
};

struct PlannedStep {
  uint64_t step_id = 0;
  std::vector<PlannedEntry> entries;
};

class StepsInFlight {
 public:
  void Begin() { next_.entries.clear(); }
  void Add(const PlannedEntry& entry) { next_.entries.push_back(entry); }
  // The plan is in flight from now on. Returns its id: 1, 2, ...
  uint64_t Commit() {
    next_.step_id = ++num_plans_;
    steps_.push_back(std::exchange(next_, {}));
    next_.entries = std::move(spare_);
    return num_plans_;
  }

  // Empty if no step is in flight.
  std::optional<PlannedStep> TakeOldest() {
    if (steps_.empty()) return std::nullopt;
    PlannedStep oldest = std::move(steps_.front());
    steps_.pop_front();
    return oldest;
  }
  void Recycle(PlannedStep step) {
    spare_ = std::move(step.entries);
    if (next_.entries.capacity() == 0) next_.entries = std::move(spare_);
  }

  bool empty() const { return steps_.empty(); }
  size_t size() const { return steps_.size(); }
  uint64_t num_plans() const { return num_plans_; }  // ever
  // The oldest step whose result is not in; if there is none, the next one to be planned.
  uint64_t oldest_step() const { return empty() ? num_plans_ + 1 : steps_.front().step_id; }

 private:
  std::deque<PlannedStep> steps_;
  PlannedStep next_;  // under construction
  std::vector<PlannedEntry> spare_;
  uint64_t num_plans_ = 0;
};

}  // namespace pagemill::scheduler::internal

#endif  // PAGEMILL_CC_SCHEDULER_INTERNAL_STEPS_IN_FLIGHT_H_
