// File: cc/runner/speculation.h
// Proposes the draft tokens of a native runner and measures their cost and gain, so that each
// request gets as many drafts in its next step as are worth their time.
//
//   Speculation speculation(proposer.get(), &clock, {.max_num_seqs = 128, .max_draft_tokens = 8});
//   speculation.Start(index, *request, {});
//   ... the step runs and samples ...
//   speculation.EndStep(step, &result);    // writes RequestResult::draft_token_ids
//
// The time of a step is measured from its begin, or the end of the one before if that is later, to
// EndStep(). The cost of a step by its size (step_costs.h) is learned from steps in which each
// request decodes. With k drafts for each of the n requests that sample, a step has n (1 + k)
// tokens: with that cost each request's DraftLength chooses its k. So with many requests, where
// tokens are no longer nearly free, there are fewer drafts, or none.
//
// Drafts of a model take time of their own (draft_model.h): the passes that make them, and the
// tokens of the request that the model has to catch up with first. That counts as the cost of the
// step, but not of its size. The prompt of a new request is computed along if the drafts of all
// requests, by the same rule, are worth their time at present.
//
// Which tokens a request gets does not depend on any of this, only how many come in one step.
//
// Ownership: proposer, model and clock outlive it. Thread safety: used by the engine thread only.
// O(tokens and drafts of the step).
#ifndef PAGEMILL_CC_RUNNER_SPECULATION_H_
#define PAGEMILL_CC_RUNNER_SPECULATION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "cc/base/clock.h"
#include "cc/runner/draft_model.h"
#include "cc/runner/step_costs.h"
#include "cc/runner/step_in_flight.h"
#include "cc/sampling/draft_length.h"
#include "cc/sampling/draft_proposer.h"
#include "cc/step/request.h"
#include "cc/step/step_result.h"

namespace pagemill::runner {

struct SpeculationOptions {
  int32_t max_num_seqs = 128;    // slots
  int32_t max_draft_tokens = 0;  // of one request in one step
};

class Speculation {
 public:
  // `model` is the proposer if that is a draft model; else null.
  Speculation(sampling::DraftProposer* proposer, const Clock* clock,
              const SpeculationOptions& options, DraftModel* model = nullptr);

  // The slot begins to hold a request that generates, whose `output_token_ids` exist already.
  void Start(step::RequestIndex index, const step::Request& request,
             std::span<const int32_t> output_token_ids);
  void Release(step::RequestIndex index);

  // `result` has what was sampled in `step`. Steps end in the order in which they began.
  void EndStep(const StepInFlight& step, step::StepResult* result);

 private:
  void MeasureStep(const StepInFlight& step);
  // Times of a step in which `num_requests` sample and one of them has tokens to catch up with.
  std::span<const double> StepSeconds(int32_t num_requests, int32_t num_waiting);
  bool IsWorthFollowing(const step::Request& request);

  sampling::DraftProposer* const proposer_;
  DraftModel* const model_;
  const Clock* const clock_;
  const SpeculationOptions options_;
  int64_t ended_ns_ = 0;  // the last step
  StepCosts costs_;
  std::vector<double> step_costs_;              // scratch: with 0, 1, ... drafts a request
  std::vector<sampling::DraftLength> lengths_;  // by slot
  sampling::DraftLength overall_;               // of all requests
  std::vector<bool> held_;                      // by slot
  int32_t num_held_ = 0;
  std::vector<int32_t> text_;  // scratch
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_SPECULATION_H_
