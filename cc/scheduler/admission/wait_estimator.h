// File: cc/scheduler/admission/wait_estimator.h
// How long until a request starts, from the work that is ahead of it and the speed seen lately.
// There is no clock in here: the code that runs the steps passes how long they took.
//
//   WaitEstimator estimator;
//   estimator.ObserveStep(plan.total_num_tokens, duration_us);  // after each step
//   estimator.ObserveOutput(num_output_tokens);                 // of each request that ended
//   std::optional<int64_t> wait_us = estimator.WaitMicros({.prompt_tokens = 5000, .ends = 2});
//
// Recent steps count more: what is older than about kWindowMicros of work fades out. Integers only:
// the same observations give the same estimates. Thread safety: none. O(1).
#ifndef PAGEMILL_CC_SCHEDULER_ADMISSION_WAIT_ESTIMATOR_H_
#define PAGEMILL_CC_SCHEDULER_ADMISSION_WAIT_ESTIMATOR_H_

#include <cstdint>
#include <optional>

namespace pagemill::scheduler {

// What must happen before a request starts.
struct WorkAhead {
  int64_t prompt_tokens = 0;  // of requests that start before it
  int64_t ends = 0;           // requests that must end before a slot is free for it
};

class WaitEstimator {
 public:
  static constexpr int64_t kWindowMicros = 10'000'000;
  static constexpr int64_t kWindowRequests = 64;

  // Steps that took no time or ran nothing say nothing.
  void ObserveStep(int64_t num_tokens, int64_t duration_us);
  void ObserveOutput(int64_t num_tokens);

  // Empty before the first step. A request that must end is taken to generate what others did on
  // average; before the first one ended, that is not counted: too short rather than too long.
  std::optional<int64_t> WaitMicros(const WorkAhead& ahead) const;

 private:
  int64_t tokens_ = 0, micros_ = 0;              // of recent steps
  int64_t output_tokens_ = 0, num_outputs_ = 0;  // of requests that ended recently
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_ADMISSION_WAIT_ESTIMATOR_H_
