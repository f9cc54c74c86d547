// File: cc/runner/draft_model.h
// A smaller model with the same vocabulary, run as a second program of the runner: it proposes
// draft tokens, which the target verifies (speculation.h).
//
//   DraftModel drafts(executor.get(), &pool, &clock, limits, {.first_kv_group = 1, ...});
//   PAGEMILL_RETURN_IF_ERROR(drafts.Draft(plan));       // before the target's pass of the same
//   plan batch.SetDrafts(i, drafts.token_ids(i));      // of entry i
//
// KV. Its block tables are KV groups of the runner like the target's, on pages of the same arena:
// the scheduler allocates its blocks with the target's, and prefix hits, preemption, tiers and
// saved sessions cover both. Slots for drafts exist only in the plan that verifies them. So
// Propose() answers with placeholders, which say how many drafts are worth their time, and Draft()
// replaces them when their plan runs: one pass over the known tokens that it has not computed, of
// all requests together, then one pass for each further draft. On an executor that takes several
// steps, a pass of greedy requests reads the drafts of the pass before it there
// (program::TokenOfRow()), and is enqueued before the host knows them.
//
// The draft model may lag behind the target. In a step without drafts it computes nothing: a
// request's tokens wait until the request has drafts again. Prompts are computed along with the
// target if Follow() says that drafts are likely. So a cached block may hold the target's KV only;
// each page records whether its block is complete, and a request that hits an incomplete block
// computes it. (A block that was loaded from elsewhere counts as complete if the page's previous
// content was. The drafts behind it may be worse, the accepted tokens are not.)
//
// Ownership: executor, pool and clock outlive it. Thread safety: used by the engine thread only.
// Draft(): O(tokens + drafts) besides its passes.
#ifndef PAGEMILL_CC_RUNNER_DRAFT_MODEL_H_
#define PAGEMILL_CC_RUNNER_DRAFT_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "cc/base/clock.h"
#include "cc/base/status.h"
#include "cc/device/thread_pool.h"
#include "cc/engine/runner.h"  // RunnerLimits
#include "cc/program/executor.h"
#include "cc/runner/block_tables.h"
#include "cc/runner/draft_sampler.h"
#include "cc/runner/step_costs.h"
#include "cc/sampling/draft_proposer.h"
#include "cc/step/request.h"
#include "cc/step/step_plan.h"

namespace pagemill::runner {

class DraftModel final : public sampling::DraftProposer {
 public:
  // kInvalidArgument if its layers are of a kind that cannot lag (only "full" and "mla" can).
  // `limits` are the runner's: the groups from `first_kv_group` on are the block tables of the
  // executor's program. It may propose the first `num_tokens` ids, limits.vocab_size at most.
  static StatusOr<std::unique_ptr<DraftModel>> Create(program::Executor* executor,
                                                      device::ThreadPool* pool, const Clock* clock,
                                                      const engine::RunnerLimits& limits,
                                                      size_t first_kv_group, int32_t num_tokens);

  size_t first_kv_group() const { return first_kv_group_; }

  // Start() and Observe() keep the text for tokens that wait.
  void Start(step::RequestIndex index, std::span<const int32_t> tokens) override;
  void Observe(step::RequestIndex index, std::span<const int32_t> tokens) override;
  void Propose(step::RequestIndex index, int32_t max_tokens, std::vector<int32_t>* drafts) override;
  // Whether to compute the prompt of the slot's request along with the target's.
  void Follow(step::RequestIndex index, bool follows) { At(index).follows = follows; }

  // Chooses a token for each draft of the plan.
  Status Draft(const step::StepPlan& plan);
  // Of entry `entry` of that plan.
  std::span<const int32_t> token_ids(size_t entry) const;
  // The distribution that a draft of the plan was drawn from (sampling::LogitsRow); drafts are
  // numbered over all entries.
  const float* probabilities(size_t draft) const { return sampler_.probabilities(draft); }

  // Duration of the last Draft().
  double last_seconds() const { return last_seconds_; }
  // Expected duration of Draft() with `num_drafts` for each of `num_requests`, one of which has
  // `num_waiting` tokens to catch up with; 0 before any pass was measured.
  double Seconds(int32_t num_requests, int32_t num_drafts, int32_t num_waiting) const;
  // Known tokens of the slot's request that wait, besides the last one; and those that did before
  // the last Draft() computed them.
  int32_t num_waiting(step::RequestIndex index) const;
  int32_t num_caught_up(step::RequestIndex index) const { return At(index).num_caught_up; }

  // Aborts if slots are inconsistent. O(slots x blocks).
  void CheckIntegrity() const;

 private:
  struct Slot {
    std::shared_ptr<const step::Request> request;
    std::vector<int32_t> text;  // prompt and outputs
    int32_t num_computed = 0;   // tokens whose KV is there
    int32_t num_complete = 0;   // tokens in blocks that are marked as complete
    int32_t num_caught_up = 0;
    std::vector<step::BlockId> pages;  // of the first table
    bool follows = false;
  };
  // The part of one request in the plan.
  struct Work {
    Slot* slot = nullptr;
    int32_t index = 0;
    int32_t end = 0;  // of the known tokens
    int32_t num_drafts = 0;
    size_t first_draft = 0;  // of the plan
    // The pass that gives its last draft, and the row.
    uint64_t pass = 0;
    int32_t row = 0;
  };
  // A pass that was enqueued and not collected.
  struct Pass {
    std::vector<DraftRow> rows;
    int32_t num_tokens = 0;
    int64_t begun_ns = 0;
  };

  DraftModel(program::Executor* executor, device::ThreadPool* pool, const Clock* clock,
             const engine::RunnerLimits& limits, size_t first_kv_group, int32_t num_tokens);
  Slot& At(step::RequestIndex index) { return slots_[static_cast<size_t>(index.value())]; }
  const Slot& At(step::RequestIndex index) const {
    return slots_[static_cast<size_t>(index.value())];
  }
  Status ApplyBlocks(const step::ScheduledRequest& entry);
  void SkipCachedTokens(Slot* slot, int32_t num_cached) const;
  void AddWork(const step::ScheduledRequest& entry);
  Status RunPasses();
  Status CatchUp();
  Status DraftFurther();
  // The token of the draft before `draft`, or the row of the last pass that gives it.
  StatusOr<int32_t> TokenBefore(const Work& work, int32_t draft);
  void MarkComplete(Slot* slot);
  void BeginPass();
  Status AddTokens(const Work& work, std::span<const int32_t> token_ids, int32_t position);
  // The last token that was added is followed by draft `draft` of its request.
  void AddRow(Work* work, int32_t draft);
  Status EnqueuePass();
  Status CollectPass();
  Status CollectPasses();

  program::Executor* const executor_;
  const Clock* const clock_;
  const engine::RunnerLimits limits_;
  const size_t first_kv_group_;
  const int32_t num_tokens_;
  DraftSampler sampler_;
  std::vector<BlockTables> tables_;
  std::vector<Slot> slots_;
  std::vector<char> complete_;  // of each page of the first table: is all of its block computed?
  StepCosts costs_;             // of passes
  double last_seconds_ = 0.0;

  std::vector<size_t> first_draft_;  // of each entry of the plan, and the end of the last
  std::vector<Work> work_;
  // The pass that is being built.
  std::vector<int32_t> token_ids_, positions_, query_start_, seq_lens_, logits_rows_;
  std::vector<ops::KvArrays> kv_;
  std::vector<DraftRow> rows_;
  std::deque<Pass> passes_;      // those before it
  uint64_t num_passes_ = 0;      // that were enqueued, ever
  int64_t last_collected_ns_ = 0;
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_DRAFT_MODEL_H_
