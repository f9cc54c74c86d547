// File: cc/runner/step_times.h
// The time of a step outside the model, which a runner records while profiling is on.
//
//   StepStopwatch watch;
//   watch.Set(true);
//   StepTimes step;
//   watch.Begin(/*goes_on=*/true, &step);  // since the end of the step before: between_s
//   ...;  watch.Lap(&StepTimes::batch_s, &step);
//   ...;  watch.Resume();                  // excludes the time since the last call
//   ...;  watch.Lap(&StepTimes::model_s, &step);
//   watch.End(StepKind::kDecode, step);
//   watch.times(StepKind::kDecode).steps
//
// Steps may overlap: a lap is the caller's time since the last call, whichever step that was for.
// While off, it never looks at the clock. Thread safety: none.
#ifndef PAGEMILL_CC_RUNNER_STEP_TIMES_H_
#define PAGEMILL_CC_RUNNER_STEP_TIMES_H_

#include <array>
#include <chrono>
#include <cstdint>

#include "cc/program/op_profile.h"

namespace pagemill::runner {

// Sums over the steps of one kind, in seconds.
struct StepTimes {
  int64_t steps = 0;
  double batch_s = 0;     // the plan becomes flat arrays
  double model_s = 0;     // the executor, collect_s included
  double collect_s = 0;   // its Collect(): on a device, waiting
  double sampling_s = 0;  // logits become tokens
  // Since the end of the previous step, if a request of it goes on in this one: results,
  // scheduling, outputs.
  double between_s = 0;
};

class StepStopwatch {
 public:
  // Turning it on forgets what was recorded before.
  void Set(bool on) {
    on_ = on;
    if (!on) return;
    times_ = {};
    ended_ = {};
  }

  // A step begins. `goes_on`: some request of it ran before, so the loop did not wait for work.
  void Begin(bool goes_on, StepTimes* step) {
    if (!on_) return;
    lap_ = Clock::now();
    if (goes_on && ended_ != Clock::time_point()) step->between_s = Seconds(lap_ - ended_);
  }

  void Resume() {
    if (on_) lap_ = Clock::now();
  }

  // What was done since the last call was this part of the step.
  void Lap(double StepTimes::*part, StepTimes* step) {
    if (!on_) return;
    const Clock::time_point now = Clock::now();
    step->*part += Seconds(now - lap_);
    lap_ = now;
  }

  // The step ends; a step that fails has no end and leaves nothing.
  void End(program::StepKind kind, const StepTimes& step) {
    if (!on_) return;
    ended_ = lap_;
    StepTimes& sum = times_[static_cast<size_t>(kind)];
    ++sum.steps;
    sum.batch_s += step.batch_s;
    sum.model_s += step.model_s + step.collect_s;
    sum.collect_s += step.collect_s;
    sum.sampling_s += step.sampling_s;
    sum.between_s += step.between_s;
  }

  const StepTimes& times(program::StepKind kind) const { return times_[static_cast<size_t>(kind)]; }

 private:
  using Clock = std::chrono::steady_clock;
  static double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

  bool on_ = false;
  Clock::time_point lap_;
  Clock::time_point ended_;  // of the last step
  std::array<StepTimes, program::kNumStepKinds> times_;
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_STEP_TIMES_H_
