// File: cc/runner/ranks/stage_steps.h
// Runs every step on the stages of a pipeline, one after the other: each stage is a rank with a
// range of the model's layers.
//
//   StagedExecutor executor(&native, group, bounds, stage);            // the last stage: rank 0
//   Status ended = FollowStages(&native, *group, bounds, stage);       // any other
//
// The ranks of the group are a ring. Rank 0 (scheduler, sampler) has the last stage, so that logits
// need not travel: it sends a step to rank 1, which has the first layers and sends it to rank 2
// with the values that later layers read, and so on, until rank 0 receives it. A rank has one step
// at a time, and rank 0 receives one before it sends another to a full ring; so messages of any
// size are taken.
//
// If the ranks of a stage divide its layers among themselves, each of them has a ring of its own
// with the same steps: every rank of a stage has all values (LeadingExecutor over StagedExecutor).
//
// A rank in front of the last stage that cannot run a step ends the group; a failure of the last
// stage is that of its step.
//
// Ownership: executor and group are the caller's and outlive the use. Thread safety: that of
// Executor.
#ifndef PAGEMILL_CC_RUNNER_RANKS_STAGE_STEPS_H_
#define PAGEMILL_CC_RUNNER_RANKS_STAGE_STEPS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/comm/group.h"
#include "cc/program/executor.h"
#include "cc/runner/ranks/step_message.h"

namespace pagemill::runner {

// A stage's part of a step.
struct Stage {
  std::vector<int32_t> tables;        // of the step's block tables, those of its program
  std::vector<std::string> receives;  // the program's inputs, from the stage before
  std::vector<std::string> sends;     // the inputs of the next stage: outputs, or what it received
};

class StagedExecutor final : public program::Executor {
 public:
  // `cpus`: the executing thread is pinned to these at its first step; empty = not pinned.
  StagedExecutor(program::Executor* executor, comm::Group* group, const StepBounds& bounds,
                 Stage stage, std::vector<int32_t> cpus = {});
  ~StagedExecutor() override;  // ends the group

  Status Enqueue(const ops::StepBatch& batch) override;
  Status Collect(program::ExecutorOutput* output) override;

 private:
  Status ReceiveOldest();

  program::Executor* const executor_;
  comm::Group* const group_;
  const StepBounds bounds_;
  const Stage stage_;
  std::vector<int32_t> cpus_;
  std::vector<int32_t> sent_;
  std::vector<int32_t> received_;
  bool has_received_ = false;  // the oldest step
  int32_t num_sent_ = 0;       // steps that are with other ranks
};

// Runs the steps that come until the group ends, and returns the reason: kUnavailable if another
// rank has ended it, as rank 0 does when it is done.
Status FollowStages(program::Executor* executor, comm::Group& group, const StepBounds& bounds,
                    const Stage& stage);

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_RANKS_STAGE_STEPS_H_
