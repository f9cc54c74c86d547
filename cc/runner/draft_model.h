// File: cc/runner/draft_model.h
// A smaller model with the same vocabulary, run as a second program of the runner: it proposes
// draft tokens, which the target verifies (speculation.h).
//
//   auto drafts = DraftModel::Create(executor.get(), &pool, &clock, limits,
//                                    {.first_kv_group = 1, .num_tokens = 32000});
//   PAGEMILL_RETURN_IF_ERROR(drafts->Draft(plan));  // before the target's pass of the same plan
//   batch.SetDrafts(i, drafts->token_ids(i));       // of entry i
//   drafts->KeepMedia(plan, media_rows, embeddings);   // if the target reads media
//   ... the target's pass ...
//   if (drafts->reads_states()) drafts->FollowTarget(tokens, output.Find(kDraftStates));
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
// A head (EAGLE, MTP) also reads the state of the token before each one (draft_states.h), which is
// there once the target has computed that. So it follows the target, behind its pass:
// FollowTarget() takes the states of a step and computes a prompt's tokens with them at once; the
// few tokens of steps that decode wait for the next drafts, or for kMaxWaiting of one request, when
// those of others are computed with them. What waits when a request ends is missing in its blocks,
// and is computed without states after a hit; where more is missing the block was loaded, with the
// head's KV. Accepted drafts are computed again, with the target's states in place of its own. Each
// pass is collected before the next one, which reads the states that it gave.
//
// Heads that give all drafts of a request in one pass (Medusa, MLP speculators) have no attention,
// so no KV groups: they read only the last known token and the state before it. No token waits for
// them, and they do not use cached blocks.
//
// Block drafters give all drafts of a request in one pass, too, which has a query for each: behind
// the known tokens come copies of a mask token. With kMasks (PARD, P-EAGLE) the row of the last
// known token gives the first draft and those of the masks the others; a query sees what is in
// front of it, and the masks are the pass's media_rows for a head. With kBlock (DFlash) each draft
// comes from a mask in its place. The last known token and the masks see each other, and of the
// tokens before them the program reads the target's states instead: those tokens are the pass's
// media_rows, the queries its text_rows, and item_ends is the end of the queries. The KV of masks
// lies in the slots of the drafts; it does not count as computed, so the next pass replaces it.
//
// Media. A head reads the embeddings that the target reads in place of placeholder tokens
// (draft_media.h), and positions of several dimensions if its program declares them. A draft model
// reads placeholders as the tokens that they are.
//
// Ownership: executor, pool and clock outlive it. Thread safety: used by the engine thread only.
// Draft(): O(tokens + drafts) besides its passes.
#ifndef PAGEMILL_CC_RUNNER_DRAFT_MODEL_H_
#define PAGEMILL_CC_RUNNER_DRAFT_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cc/base/clock.h"
#include "cc/base/status.h"
#include "cc/device/thread_pool.h"
#include "cc/engine/runner.h"  // RunnerLimits
#include "cc/program/executor.h"
#include "cc/runner/block_tables.h"
#include "cc/runner/draft_inputs/draft_media.h"
#include "cc/runner/draft_inputs/draft_states.h"
#include "cc/runner/draft_sampler.h"
#include "cc/runner/step_costs.h"
#include "cc/sampling/draft_proposer.h"
#include "cc/step/request.h"
#include "cc/step/step_plan.h"
#include "cc/tensor/dtype.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::runner {

// What a pass has for the drafts of a request.
enum class DraftQueries : uint8_t {
  kToken,  // the token before one draft; further drafts take further passes
  kMasks,  // a mask token for each draft behind the first
  kBlock,  // a mask token for each draft, which see each other and the last known token
};

struct DraftModelOptions {
  // The groups of the runner's limits from this one on are the block tables of its program.
  size_t first_kv_group = 0;
  // Columns of its logits that it may propose, at most as many as the target has tokens.
  int32_t num_tokens = 0;
  // The target's id of each of these columns; empty: the same ids. Not empty, it reads all of the
  // target's ids.
  std::vector<int32_t> token_ids = {};
  // Elements of a token's state, of a head; 0: it reads none.
  int32_t states_width = 0;
  // Outputs of logits of a program that gives as many drafts in one pass (draft_sampler.h), and has
  // no KV groups; 0: each draft takes a pass.
  int32_t num_heads = 0;
  DraftQueries queries = DraftQueries::kToken;
  int32_t mask_token_id = 0;  // that stands for drafts, if there are masks
  // Elements of an embedding of media, of a head; 0: it reads none.
  int32_t media_width = 0;
  DType input_type = DType::kF32;  // of states and embeddings
  bool grid_positions = false;     // whether its program declares them
};

// Tokens of a step that the target has computed and that stay: known ones and accepted drafts.
struct TargetTokens {
  step::RequestIndex index;
  int64_t first_row = 0;  // of the step's tokens
  int32_t count = 0;
};

class DraftModel final : public sampling::DraftProposer {
 public:
  // Tokens of one request that wait until a head computes them without drafts.
  static constexpr int32_t kMaxWaiting = 16;

  // kInvalidArgument if its layers are of a kind that cannot lag (only "full" and "mla" can), or
  // the options do not fit `limits`, which are the runner's.
  static StatusOr<std::unique_ptr<DraftModel>> Create(program::Executor* executor,
                                                      device::ThreadPool* pool, const Clock* clock,
                                                      const engine::RunnerLimits& limits,
                                                      const DraftModelOptions& options);

  size_t first_kv_group() const { return options_.first_kv_group; }
  bool reads_states() const { return states_.has_value(); }

  // Start() and Observe() keep the text for tokens that wait.
  void Start(step::RequestIndex index, std::span<const int32_t> tokens) override;
  void Observe(step::RequestIndex index, std::span<const int32_t> tokens) override;
  void Propose(step::RequestIndex index, int32_t max_tokens, std::vector<int32_t>* drafts) override;
  // Whether to compute the prompt of the slot's request along with the target's; a head always
  // does.
  void Follow(step::RequestIndex index, bool follows) { At(index).follows = follows; }

  // Chooses a token for each draft of the plan.
  Status Draft(const step::StepPlan& plan);
  // Keeps the embeddings that the target reads in the step of `plan`, for a head that reads media.
  // Row i of `embeddings` is that of token media_rows[i] of the step.
  Status KeepMedia(const step::StepPlan& plan, std::span<const int32_t> media_rows,
                   const TensorView& embeddings);
  // Takes the states of a step of the target, `states` [tokens of the step, width], before
  // Observe() gets its tokens, and computes the tokens of requests of which too many wait.
  // Only if it reads_states().
  Status FollowTarget(std::span<const TargetTokens> tokens, const TensorView& states);
  // Of entry `entry` of that plan.
  std::span<const int32_t> token_ids(size_t entry) const;
  // The distribution that a draft of the plan was drawn from (sampling::LogitsRow); drafts are
  // numbered over all entries.
  const float* probabilities(size_t draft) const { return sampler_.probabilities(draft); }

  // Duration of the last Draft() or FollowTarget().
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
             const engine::RunnerLimits& limits, const DraftModelOptions& options);
  Slot& At(step::RequestIndex index) { return slots_[static_cast<size_t>(index.value())]; }
  const Slot& At(step::RequestIndex index) const {
    return slots_[static_cast<size_t>(index.value())];
  }
  Status ApplyBlocks(const step::ScheduledRequest& entry);
  void SkipCachedTokens(Slot* slot, int32_t num_cached);
  void AddWork(const step::ScheduledRequest& entry);
  Status RunPasses();
  Status CatchUp();
  Status DraftFurther();
  // The token of the draft before `draft`, or the row of the last pass that gives it.
  StatusOr<int32_t> TokenBefore(const Work& work, int32_t draft);
  void MarkComplete(Slot* slot);
  void DropInputs(int32_t index, const Slot& slot);
  void BeginPass();
  // The state of a head's token is that of the text before it, or of its draft `own_state`.
  Status AddTokens(const Work& work, std::span<const int32_t> token_ids, int32_t position,
                   std::optional<size_t> own_state = std::nullopt);
  // The known tokens from `position` on, and masks behind them.
  Status AddBlock(Work* work, int32_t position);
  // Fills `readable_` with known tokens as the program reads them.
  void ReadKnown(const Slot& slot, int32_t position, int32_t count);
  // The last token that was added gives draft `draft` of its request, or all of them if each draft
  // has a head.
  void AddRow(Work* work, int32_t draft);
  void AddDraftRow(const Work& work, int32_t draft, int32_t row, int32_t head);
  Status EnqueuePass();
  Status CollectPass();
  Status CollectPasses();
  // True if a pass may be enqueued before the tokens of the one before it are known.
  bool Chains() const;
  bool HasHeads() const { return options_.num_heads > 0; }
  bool HasMasks() const { return options_.queries != DraftQueries::kToken; }
  bool HasBlocks() const { return options_.queries == DraftQueries::kBlock; }
  // Masks behind the known tokens of a request, in a pass that gives this many of its drafts.
  int32_t NumMasks(int32_t num_drafts) const;
  Status KeepStates(const Pass& pass, const program::ExecutorOutput& output);

  program::Executor* const executor_;
  const Clock* const clock_;
  const engine::RunnerLimits limits_;
  const DraftModelOptions options_;
  const int32_t num_readable_;  // ids below it, of the target
  DraftSampler sampler_;
  std::optional<DraftStates> states_;  // of a head
  std::optional<DraftMedia> media_;    // of a head that reads media
  std::vector<BlockTables> tables_;
  std::vector<Slot> slots_;
  std::vector<char> complete_;  // of each page of the first table: is all of its block computed?
  StepCosts costs_;             // of passes
  double last_seconds_ = 0.0;

  std::vector<size_t> first_draft_;  // of each entry of the plan, and the end of the last
  std::vector<Work> work_;
  // The pass that is being built.
  std::vector<int32_t> token_ids_, positions_, query_start_, seq_lens_, logits_rows_;
  std::vector<int32_t> grid_positions_;
  std::vector<int32_t> readable_;
  std::vector<int32_t> marked_rows_;             // media_rows of a head with masks
  std::vector<int32_t> query_rows_, item_ends_;  // of blocks
  std::vector<ops::KvArrays> kv_;
  std::vector<DraftRow> rows_;
  std::deque<Pass> passes_;  // those before it
  uint64_t num_passes_ = 0;  // that were enqueued, ever
  int64_t last_collected_ns_ = 0;
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_DRAFT_MODEL_H_
