// File: cc/runner/speculation.h
// The draft tokens of a native runner: proposes them, and keeps account of what they cost and gain,
// so that each request gets as many as are worth their time in its next step.
//
//   Speculation speculation(proposer.get(), &clock, {.max_num_seqs = 128, .max_draft_tokens = 8});
//   speculation.Start(index, *request, {});
//   speculation.BeginStep();
//   ... the step runs and samples ...
//   speculation.EndStep(plan, &result);    // writes RequestResult::draft_token_ids
//
// The time of a step is measured from BeginStep() to EndStep(). Steps in which each request decodes
// teach what a step costs by its size (step_costs.h). With k drafts for each of the n requests that
// sample, a step has n (1 + k) tokens: with that cost each request's DraftLength chooses its k. So
// with many requests, where tokens are no longer nearly free, there are fewer drafts, or none.
//
// Which tokens a request gets does not depend on any of this, only how many come in one step.
//
// Ownership: proposer and clock outlive it. Thread safety: used by the engine thread only. O(tokens
// and drafts of the step).
#ifndef PAGEMILL_CC_RUNNER_SPECULATION_H_
#define PAGEMILL_CC_RUNNER_SPECULATION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "cc/base/clock.h"
#include "cc/runner/step_costs.h"
#include "cc/sampling/draft_length.h"
#include "cc/sampling/draft_proposer.h"
#include "cc/step/request.h"
#include "cc/step/step_plan.h"
#include "cc/step/step_result.h"

namespace pagemill::runner {

struct SpeculationOptions {
  int32_t max_num_seqs = 128;    // slots
  int32_t max_draft_tokens = 0;  // of one request in one step
};

class Speculation {
 public:
  Speculation(sampling::DraftProposer* proposer, const Clock* clock,
              const SpeculationOptions& options);

  // The slot begins to hold a request that generates, whose `output_token_ids` exist already.
  void Start(step::RequestIndex index, const step::Request& request,
             std::span<const int32_t> output_token_ids);
  void Release(step::RequestIndex index);

  void BeginStep() { begun_ns_ = clock_->NowNanos(); }
  // `result` has what was sampled for `plan`.
  void EndStep(const step::StepPlan& plan, step::StepResult* result);

 private:
  void MeasureStep(const step::StepPlan& plan);

  sampling::DraftProposer* const proposer_;
  const Clock* const clock_;
  const SpeculationOptions options_;
  int64_t begun_ns_ = 0;
  StepCosts costs_;
  std::vector<double> step_costs_;              // of this step, with 0, 1, ... drafts a request
  std::vector<sampling::DraftLength> lengths_;  // by slot
  std::vector<int32_t> text_;                   // scratch
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_SPECULATION_H_
