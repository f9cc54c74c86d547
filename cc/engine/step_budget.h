// File: cc/engine/step_budget.h
// How many prompt tokens a step may run beside requests that decode, so that their streams do not
// stall: as many as keep the step within a limit, by what measured steps cost.
//
//   StepBudgeter budgeter(options.max_step_us);
//   scheduler->Schedule(&plan, budgeter.Next(scheduler->num_decoding()));
//   ... run the plan ...
//   budgeter.Observe(StepWork::Of(plan), duration_us);
//
// With several steps in flight, the duration of a step is the time since the one before it ended,
// or since its own start if that is later. docs/scheduling.md has the trade that the constants
// make, docs/decisions/0037-a-steps-time-is-a-budget.md the reasons.
//
// Thread safety: none. O(1).
#ifndef PAGEMILL_CC_ENGINE_STEP_BUDGET_H_
#define PAGEMILL_CC_ENGINE_STEP_BUDGET_H_

#include <cstdint>
#include <optional>

#include "cc/engine/step_cost.h"
#include "cc/scheduler/scheduler.h"

namespace pagemill::engine {

class StepBudgeter {
 public:
  // The automatic limit: so many times what the decoding requests of the step take alone, and at
  // least kLeastAutomaticMicros, since shorter pauses are seen by no reader.
  static constexpr double kAutomaticMultiple = 2.5;
  static constexpr int64_t kLeastAutomaticMicros = 5'000;
  // Prompts advance by so many tokens a step even if that exceeds the limit.
  static constexpr int32_t kLeastTokens = 16;

  // The longest step in microseconds; 0 = no limit, empty = automatic.
  explicit StepBudgeter(std::optional<int64_t> max_step_us) : max_step_us_(max_step_us) {}

  // For a step in which so many requests decode. No limit if none does.
  scheduler::StepBudget Next(int32_t num_decoding) const;
  void Observe(const StepWork& work, int64_t duration_us);

 private:
  StepWork DecodeWork(int32_t num_decoding) const;

  const std::optional<int64_t> max_step_us_;
  StepCost cost_;
  StepWork last_decode_;             // of the newest step in which requests decoded
  int64_t longest_prefill_ = 0;      // of the newest step with prefill tokens
  int64_t most_prefill_tokens_ = 0;  // of a step that was measured
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_STEP_BUDGET_H_
