// File: cc/runner/step_in_flight.h
// A step of a native runner from Execute() until it is sampled: what sampling and reporting need,
// since the plan may change once Sample() has returned.
//
//   StepsInFlight steps;
//   StepInFlight& step = steps.Add();      // the newest
//   ...
//   while (!steps.empty()) { Finish(steps.oldest()); steps.PopOldest(); }
//
// Steps that were popped lend their memory to later ones, so that nothing is allocated once steps
// have been as large and as many. Thread safety: none.
#ifndef PAGEMILL_CC_RUNNER_STEP_IN_FLIGHT_H_
#define PAGEMILL_CC_RUNNER_STEP_IN_FLIGHT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/ops/sample/token_scores.h"
#include "cc/runner/batch_state.h"
#include "cc/runner/step_times.h"
#include "cc/step/request.h"
#include "cc/step/step_plan.h"

namespace pagemill::runner {

// A request's part of a step.
struct StepEntry {
  step::RequestIndex index;
  uint64_t holder = 0;  // which request held the slot: one number for each start
  bool pools = false;   // its pooled output is wanted
  bool samples = false;
  bool routed_experts = false;  // those of its tokens are wanted
  int32_t num_tokens = 0;          // known ones that it runs
  int32_t num_drafts = 0;          // that it verifies
  int32_t num_missing_drafts = 0;  // placeholders that were not replaced
  bool forced = false;             // its drafts are the request's matcher's
};

inline StepEntry MakeStepEntry(const step::ScheduledRequest& entry) {
  return {.index = entry.index,
          .samples = entry.sample,
          .num_tokens = static_cast<int32_t>(entry.token_ids.size()),
          .num_drafts = static_cast<int32_t>(entry.draft_token_ids.size())};
}

struct StepInFlight {
  uint64_t step_id = 0;
  std::vector<StepEntry> entries;
  std::vector<BatchRow> rows;
  std::vector<ops::ScoredRow> scored;  // rows of which the executor gives log probabilities
  uint64_t number = 0;    // of those that were enqueued, from 1
  bool enqueued = false;  // with the executor; a step that runs nothing is not
  // The next step depends on what the host computes from this one. False if the executor finds each
  // row's token, the column of its largest logit or one that it draws, and no draft is verified, or
  // if the executor is pipelined and there are no masks: then that step may begin before this one
  // is over.
  bool needs_host = true;
  Status sampled;  // of Executor::Sample(), if it was called
  program::StepKind kind = {};
  int64_t begun_ns = 0;
  double draft_seconds = 0.0;  // of the draft model's passes before it
  StepTimes times;
};

class StepsInFlight {
 public:
  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }
  StepInFlight& oldest() { return steps_.front(); }
  StepInFlight& newest() { return steps_[count_ - 1]; }
  const StepInFlight& operator[](size_t i) const { return steps_[i]; }  // 0: the oldest

  // Empty, with memory in its lists.
  StepInFlight& Add() {
    if (count_ == steps_.size()) steps_.emplace_back();
    StepInFlight& step = steps_[count_++];
    step.entries.clear();
    step.rows.clear();
    step.scored.clear();
    step.enqueued = false;
    step.needs_host = true;
    if (!step.sampled.ok()) step.sampled = OkStatus();
    step.number = 0;
    step.begun_ns = 0;
    step.draft_seconds = 0.0;
    step.times = {};
    return step;
  }
  void PopOldest() {
    std::rotate(steps_.begin(), steps_.begin() + 1, steps_.begin() + static_cast<int64_t>(count_));
    --count_;
  }
  void PopNewest() { --count_; }

 private:
  std::vector<StepInFlight> steps_;  // the first `count_` are in flight
  size_t count_ = 0;
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_STEP_IN_FLIGHT_H_
