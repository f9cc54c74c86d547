// File: cc/engine/step_cost.h
// What a step costs, learned from the steps that were measured.
//
//   StepCost cost;
//   cost.Observe(StepWork::Of(plan), duration_us);    // after each step
//   double us = cost.Micros({.decode_tokens = 16, .decode_context = 4096});
//
// The model is linear, with coefficients that are at least 0:
//
//   t = a + b decode_tokens + c decode_context + d prefill_tokens + e prefill_context
//
// Each step moves the coefficients by a tenth of what the prediction lacked, in proportion to their
// parts in it (proportionate normalized least mean squares; D. L. Duttweiler, IEEE Trans. Speech
// and Audio Processing 8(5), 2000), so that all keep their sign and no input makes them diverge.
// The first steps count more. After them a step counts as at most one and a half times its
// prediction, so that a process that stalls once moves the estimate by a twentieth. What recent
// steps do not show, as the cost of prompts while none comes, keeps its value.
//
// Real costs are not linear: a step takes the longer of reading weights and multiplying. The
// model then fits the steps that it sees, which are those of the size that its user chooses.
//
// Thread safety: none. O(1); Observe() takes about 20 ns.
#ifndef PAGEMILL_CC_ENGINE_STEP_COST_H_
#define PAGEMILL_CC_ENGINE_STEP_COST_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "cc/step/step_plan.h"

namespace pagemill::engine {

// What the cost of a step depends on.
struct StepWork {
  int64_t num_decoding = 0;    // requests that run one token, and drafts
  int64_t decode_tokens = 0;   // of those requests, drafts included
  int64_t decode_context = 0;  // tokens of context that those requests read
  int64_t prefill_tokens = 0;  // of requests that run several tokens
  // Sum over prefill tokens of the tokens that each of them attends to.
  int64_t prefill_context = 0;
  int64_t longest_prefill = 0;  // tokens that the request with most of them has computed then

  // O(entries of the plan).
  static StepWork Of(const step::StepPlan& plan);
};

class StepCost {
 public:
  // Steps that took no time are not counted.
  void Observe(const StepWork& work, int64_t duration_us);

  // 0 before the first observation.
  double Micros(const StepWork& work) const;

  bool known() const { return num_observed_ > 0; }

 private:
  static constexpr size_t kNumTerms = 5;
  using Vector = std::array<double, kNumTerms>;

  static Vector TermsOf(const StepWork& work);

  int num_observed_ = 0;  // up to kNumFirst
  Vector coefficients_{};
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_STEP_COST_H_
