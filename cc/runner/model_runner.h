// File: cc/runner/model_runner.h
// The engine's Runner over a program: batch state, executor, sampler.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<ModelRunner> runner,
//                       ModelRunner::Create(executor.get(), executor->thread_pool(), limits));
//   Engine::Create(options, std::move(runner), ...);
//
// Execute() enqueues the forward pass, Sample() waits for token masks, which a thread of their own
// fills during the pass (mask_filler.h), and Collect() for the pass; it samples on the calling
// thread. If limits.routed_experts_per_token is not 0, the program has outputs "experts.<layer>",
// i32 [tokens, choices], so many in all, which go to the requests that want them. With
// limits.token_rows it has "pooled" [tokens, width] beside logits, of which pooling requests get
// the rows of their tokens in each step. With a proposer, results carry drafts of the next step
// (speculation.h), with a draft model the number of them: that computes them when their step begins
// (draft_model.h).
//
// Steps in flight. The executor says how many it takes (max_steps_in_flight()), and whether it
// draws tokens (samples()). A step whose requests all want tokens that the executor finds, the most
// likely or drawn ones, and log probabilities that it gives, leaves nothing to the host: Sample()
// enqueues the draws, the ids stay with the executor, where the next step reads them
// (program::TokenOfRow()), and Execute() of that step does not wait. Sample() does, if token
// matchers must accept those tokens before they fill the masks of the step: they do so while its
// forward pass runs. Any other step is sampled on the host, at the latest when the next begins: so
// that its tokens are known then, and token matchers have accepted them before they fill masks
// again. So is a step that verifies drafts, since the place of what comes next depends on how many
// are accepted. With a pipelined executor steps in flight are of different requests, and each is
// sampled on the host when it is collected; only a step with masks, for which there is memory once,
// is sampled before the next begins. Plans made before that is known count on all of them;
// Execute() corrects their entries, and replaces their placeholders of drafts by what was proposed
// meanwhile, if so many were.
//
// Ownership: executor, pool, pages, control and clock are the caller's and outlive the runner.
// Thread safety: that of Runner.
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
#include "cc/ops/sample/row_draw.h"
#include "cc/program/executor.h"
#include "cc/runner/adapters/running_adapters.h"
#include "cc/runner/batch_state.h"
#include "cc/runner/draft_model.h"
#include "cc/runner/mask_filler.h"
#include "cc/runner/media/media_embeddings.h"
#include "cc/runner/speculation.h"
#include "cc/runner/step_in_flight.h"
#include "cc/runner/step_times.h"
#include "cc/sampling/draft_proposer.h"
#include "cc/sampling/sampler.h"
#include "cc/sampling/watermark/watermark.h"
#include "cc/step/page_store.h"
#include "cc/step/step_plan.h"
#include "cc/step/step_result.h"

namespace pagemill::runner {

// Optional parts of a runner.
struct ModelRunnerParts {
  step::PageStore* pages = nullptr;  // the executor's KV cache, if it can be copied elsewhere
  engine::RunnerControl* control = nullptr;  // if weights can leave memory and be replaced
  // Of limits.max_num_seqs slots, if drafts are proposed on the host.
  std::unique_ptr<sampling::DraftProposer> proposer = nullptr;
  // If drafts come from a model, whose block tables are the last of limits.kv_groups.
  std::unique_ptr<DraftModel> draft_model = nullptr;
  // Measures the times that decide the number of drafts; null: the machine's clock.
  const Clock* clock = nullptr;
  std::unique_ptr<MediaEmbeddings> media = nullptr;     // if limits.max_encoder_tokens allows media
  std::unique_ptr<RunningAdapters> adapters = nullptr;  // if limits.max_adapters allows some
  std::optional<sampling::Watermark> watermark = std::nullopt;  // of all texts
};

class ModelRunner final : public engine::Runner {
 public:
  // kInvalidArgument if the limits make no sense. Logits may have more columns than
  // limits.vocab_size (a padded vocabulary); the rest is ignored.
  static StatusOr<std::unique_ptr<ModelRunner>> Create(program::Executor* executor,
                                                       device::ThreadPool* pool,
                                                       const engine::RunnerLimits& limits,
                                                       ModelRunnerParts parts = {});

  Status Execute(const step::StepPlan& plan) override;
  Status Sample() override;
  StatusOr<step::StepResult> Collect() override;

  // While on, steps also measure their parts (~0.1 us a step). Turning it on resets the times. Both
  // only while no step runs.
  void SetProfiling(bool on) { stopwatch_.Set(on); }
  StepTimes Profile(program::StepKind kind) const { return stopwatch_.times(kind); }

  // Media items that were encoded since the beginning.
  int64_t num_encoded_media() const { return media_ == nullptr ? 0 : media_->num_encoded_items(); }

  // Aborts if its parts are inconsistent.
  void CheckIntegrity() const;

 private:
  ModelRunner(program::Executor* executor, device::ThreadPool* pool,
              const engine::RunnerLimits& limits, ModelRunnerParts parts);
  Status CheckDrafts(const step::StepPlan& plan) const;
  Status MakeDrafts(const step::StepPlan& plan);
  void ApplyToSlots(const step::StepPlan& plan);
  Status Enqueue(const step::StepPlan& plan, StepInFlight* step);
  void AddEntries(const step::StepPlan& plan, const step::StepPlan& exact,
                  StepInFlight* step) const;
  int32_t max_drafts() const;  // of one request in one step
  bool VerifiesDrafts(const StepInFlight& step) const;
  const step::StepPlan& Resolve(const step::StepPlan& plan);
  Status FillPlaceholders();
  bool AddMasks(const step::StepPlan& plan);  // true if there is one
  // True if steps before the newest have tokens that matchers must accept before they fill masks.
  bool MatchersWait() const;
  // How the token of a row is found: by the executor, the largest or a drawn one, or by the host
  // in logits. For a step it is the last of these that a row has.
  enum class Finder { kLargest, kDraw, kHost };
  Finder FinderOf(const step::ScheduledRequest& entry, const BatchRow& row) const;
  Finder FinderOf(const step::StepPlan& plan) const;
  void MakeDraws(const step::StepPlan& plan, StepInFlight* step);
  void SampleOnExecutor(StepInFlight* step);
  void NoteSamples(const StepInFlight& step);

  // model_runner_finish.cc
  void FinishForNextStep();
  void FinishOldest();
  Status Finish(StepInFlight* step, step::StepResult* result);
  Status CheckOutput(const StepInFlight& step) const;
  // True if the entry's request still holds the slot; otherwise its result is dropped.
  bool Holds(const StepEntry& entry) const;
  void TakeFoundTokens(const StepInFlight& step, step::StepResult* result);
  void AddRows(const StepInFlight& step);
  void SampleRows(const StepInFlight& step, step::StepResult* result);
  void ObserveSamples(const StepInFlight& step, const step::StepResult& result);
  void SettleSamples(const StepInFlight& step, const step::StepResult& result);
  void ProposeForced(const StepInFlight& step, step::StepResult* result);
  // Why a request in a slot fails, whatever its step gives: its matcher, its adapter.
  const Status& FailureOf(step::RequestIndex index) const;
  // A draft head takes the states of the step's tokens.
  Status FollowWithDrafts(StepInFlight* step, const step::StepResult& result);
  void TakePooled(const StepInFlight& step, step::StepResult* result);
  Status TakeRoutedExperts(const StepInFlight& step, step::StepResult* result) const;

  program::Executor* executor_;
  const std::unique_ptr<sampling::DraftProposer> proposer_;  // null: none
  const std::unique_ptr<DraftModel> draft_model_;            // null: none
  const std::unique_ptr<MediaEmbeddings> media_;             // null: none
  const std::unique_ptr<RunningAdapters> adapters_;             // null: none
  BatchState batch_;
  sampling::Sampler sampler_;
  MaskFiller masks_;
  const SteadyClock machine_clock_;
  const Clock* const clock_;
  std::optional<Speculation> speculation_;  // if there is one
  StepStopwatch stopwatch_;
  // A slot's request, and the token that it samples last.
  static constexpr int32_t kNoRow = -1, kInFlight = -1;
  struct Slot {
    uint64_t holder = 0;   // 0: the slot is free
    uint64_t step = 0;     // number of the step that samples it; 0: none does
    int32_t row = kNoRow;  // of that step, if it is one
    int32_t token_id = kInFlight;
    int32_t num_tokens = 0;            // with that one, without drafts in flight
    std::vector<int32_t> drafts = {};  // proposed behind it
    bool forced = false;               // by the request's matcher
    // Copies of what the request says, which every step reads.
    bool pooling = false;
    bool routed_experts = false;
    bool greedy = false;
  };

  bool executed_ = false;  // a step was, and not sampled
  step::StepPlan exact_;   // of Resolve()
  StepsInFlight steps_;
  int32_t num_enqueued_ = 0;  // of steps_
  uint64_t num_started_ = 0;  // steps that were enqueued, ever: the number of the last
  uint64_t num_holders_ = 0;  // requests that slots have held, ever
  std::vector<Slot> slots_;
  bool masks_wait_ = false;          // of the step executed last, for those before it
  std::vector<ops::RowDraw> draws_;  // of that step; empty if its tokens are the largest
  sampling::StepAdjustments adjustments_;  // likewise
  program::ExecutorOutput output_;   // of the step that is being finished
  std::vector<sampling::LogitsRow> rows_;
  std::vector<size_t> sampled_rows_;  // of the step, those in rows_
  std::vector<sampling::RowOutput> row_outputs_;
  std::vector<TargetTokens> target_tokens_;
  std::deque<StatusOr<step::StepResult>> finished_;  // and not collected
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_MODEL_RUNNER_H_
