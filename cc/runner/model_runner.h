// File: cc/runner/model_runner.h
// The engine's Runner over a program: batch state, executor, sampler.
//
//   PM_ASSIGN_OR_RETURN(std::unique_ptr<ModelRunner> runner,
//                       ModelRunner::Create(executor.get(), executor->thread_pool(), limits));
//   Engine::Create(options, std::move(runner), ...);
//
// Execute() runs the forward pass and Sample() the sampling to their ends on the calling thread;
// Collect() returns the oldest result. Token masks are filled by a thread of their own during the
// pass (mask_filler.h). With a proposer, results carry drafts of the next step (speculation.h),
// with a draft model the number of them: that computes them when their step begins (draft_model.h).
//
// Ownership: executor, pool and pages are the caller's and outlive the runner. Thread safety: that
// of Runner.
#ifndef PAGEMILL_CC_RUNNER_MODEL_RUNNER_H_
#define PAGEMILL_CC_RUNNER_MODEL_RUNNER_H_

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "cc/base/clock.h"
#include "cc/base/status.h"
#include "cc/device/thread_pool.h"
#include "cc/engine/runner.h"
#include "cc/program/executor.h"
#include "cc/runner/batch_state.h"
#include "cc/runner/draft_model.h"
#include "cc/runner/mask_filler.h"
#include "cc/runner/speculation.h"
#include "cc/runner/step_times.h"
#include "cc/sampling/draft_proposer.h"
#include "cc/sampling/sampler.h"
#include "cc/step/page_store.h"
#include "cc/step/step_plan.h"
#include "cc/step/step_result.h"

namespace pagemill::runner {

class ModelRunner final : public engine::Runner {
 public:
  // kInvalidArgument if the limits make no sense. Logits may have more columns than
  // limits.vocab_size (a padded vocabulary); the rest is ignored. `pages` is the executor's KV
  // cache; null if that cannot be copied elsewhere. `proposer` has limits.max_num_seqs slots; null:
  // no drafts, or those of `draft_model`, whose block tables are the last of limits.kv_groups.
  static StatusOr<std::unique_ptr<ModelRunner>> Create(
      program::Executor* executor, device::ThreadPool* pool, const engine::RunnerLimits& limits,
      step::PageStore* pages = nullptr, std::unique_ptr<sampling::DraftProposer> proposer = nullptr,
      std::unique_ptr<DraftModel> draft_model = nullptr);

  Status Execute(const step::StepPlan& plan) override;
  Status Sample() override;
  StatusOr<step::StepResult> Collect() override;

  // While on, steps also measure their parts (~0.1 us a step). Turning it on resets the times. Both
  // only while no step runs.
  void SetProfiling(bool on) { stopwatch_.Set(on); }
  StepTimes Profile(program::StepKind kind) const { return stopwatch_.times(kind); }

  // Aborts where its parts contradict themselves.
  void CheckIntegrity() const;

 private:
  ModelRunner(program::Executor* executor, device::ThreadPool* pool,
              const engine::RunnerLimits& limits, step::PageStore* pages,
              std::unique_ptr<sampling::DraftProposer> proposer,
              std::unique_ptr<DraftModel> draft_model);
  Status CheckDrafts(const step::StepPlan& plan) const;
  Status MakeDrafts(const step::StepPlan& plan);
  void ApplyToSlots(const step::StepPlan& plan);
  Status RunForward(const step::StepPlan& plan);
  void FillMasks(const step::StepPlan& plan);
  void AddRows(const step::StepPlan& plan);
  // May the executor leave logits out: is the largest of each row all that this step wants?
  bool WantsOnlyMaxima(const step::StepPlan& plan) const;
  Status CheckOutput() const;
  void SampleRows(const step::StepPlan& plan, step::StepResult* result);
  void TakePooled(const step::StepPlan& plan, step::StepResult* result);

  program::Executor* executor_;
  const std::unique_ptr<DraftModel> draft_model_;  // null: none
  BatchState batch_;
  sampling::Sampler sampler_;
  MaskFiller masks_;
  const SteadyClock clock_;
  const std::unique_ptr<sampling::DraftProposer> proposer_;  // null: none
  std::optional<Speculation> speculation_;                   // if there is one
  StepStopwatch stopwatch_;
  const step::StepPlan* plan_ = nullptr;  // executed and not sampled; null: none
  program::ExecutorOutput output_;        // of that plan
  std::vector<sampling::LogitsRow> rows_;
  std::vector<sampling::RowOutput> row_outputs_;
  std::deque<step::StepResult> finished_;  // sampled and not collected
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_MODEL_RUNNER_H_
