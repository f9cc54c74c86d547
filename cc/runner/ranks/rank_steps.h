// File: cc/runner/ranks/rank_steps.h
// Runs every step on every rank: rank 0 (scheduler, sampler, front end) sends the batch to the
// others, which run it; all ranks meet in the program's collectives.
//
//   LeadingExecutor executor(&native, group, bounds);       // rank 0, for its ModelRunner
//   Status ended = FollowSteps(&native, *group, bounds);    // any other rank, until rank 0 ends
//
// A message is the step's arrays and inputs (embeddings of images; step_message.h), through shared
// memory. An encoder of media runs on rank 0 alone. Of what only sampling needs it says whether
// logits are wanted or their maxima; how tokens are drawn, under which masks and penalties, is a
// message of its own behind the step's, if some are. A token that the step before samples is sent
// as its row of that step (program::TokenOfRow()): each rank has found or drawn it for itself, from
// the same logits by the same numbers. So rank 0 sends a step before it knows its tokens, and as
// many are in flight on every rank as the executors take. Ranks of stages (stage_steps.h) compute
// when they collect, so that is a message, too; likewise if pages of all ranks are copied
// (rank_pages.h), which waits for collected steps.
//
// Which adapters have slots is a message for each change, in front of the step that needs it. So is
// each call of a control (rank_control.h): sleep, wake and weight updates.
//
// A rank that cannot run a step that the others run ends the group.
//
// Ownership: executor and group are the caller's and outlive the use. Thread safety: that of
// Executor.
#ifndef PAGEMILL_CC_RUNNER_RANKS_RANK_STEPS_H_
#define PAGEMILL_CC_RUNNER_RANKS_RANK_STEPS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "cc/base/status.h"
#include "cc/comm/group.h"
#include "cc/engine/runner_control.h"
#include "cc/ops/batch_view.h"
#include "cc/program/executor.h"
#include "cc/runner/ranks/rank_pages.h"
#include "cc/runner/ranks/step_message.h"
#include "cc/step/request.h"  // AdapterId

namespace pagemill::runner {

class LeadingExecutor final : public program::Executor {
 public:
  // `cpus`: the executing thread is pinned to these at its first step; empty = not pinned. `pages`
  // are those of all ranks; null if none are copied.
  LeadingExecutor(program::Executor* executor, comm::Group* group, const StepBounds& bounds,
                  std::vector<int32_t> cpus = {}, LeadingPages* pages = nullptr);
  ~LeadingExecutor() override;  // ends the other ranks

  Status Enqueue(const ops::StepBatch& batch) override;
  Status Collect(program::ExecutorOutput* output) override;
  Status Sample(const program::StepDraws& draws) override;

  // What the other ranks do with their part of an adapter (FollowedAdapters), between steps.
  Status SetAdapter(int32_t slot, step::AdapterId adapter);
  Status ForgetAdapter(step::AdapterId adapter);

 private:
  program::Executor* const executor_;
  comm::Group* const group_;
  const StepBounds bounds_;
  std::vector<int32_t> cpus_;
  LeadingPages* const pages_;
  std::vector<int32_t> message_;
};

// What a rank does with its part of adapters. Null if it has none.
struct FollowedAdapters {
  // kNoAdapter empties the slot.
  std::function<Status(int32_t slot, step::AdapterId adapter)> set = nullptr;
  std::function<void(step::AdapterId adapter)> forget = nullptr;
};

// Runs the steps of rank 0 until it ends: OK. Otherwise the reason why the group has ended.
// `control` is that of this rank's programs; null if rank 0 has none. `pages` serves this rank's
// pages; null if rank 0 copies none.
Status FollowSteps(program::Executor* executor, comm::Group& group, const StepBounds& bounds,
                   const FollowedAdapters& adapters = {}, engine::RunnerControl* control = nullptr,
                   PageServer* pages = nullptr);

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_RANKS_RANK_STEPS_H_
