// File: cc/runner/batch_state.h
// Turns step plans into the flat arrays that kernels read (ops::StepBatch). Keeps each slot's
// block tables (block_tables.h) across steps, so that a plan is applied as a diff.
//
//   BatchState state(options);
//   PAGEMILL_RETURN_IF_ERROR(state.Apply(plan));
//   executor->Enqueue(state.view());
//   for (const BatchRow& row : state.rows()) ...  // which logits row is for what
//
// Cost of Apply(): O(tokens of the step + new blocks + blocks in common x requests), once per block
// table; with grid positions also O(media items of its requests). No allocation once the arrays
// have been used. Thread safety: used by the engine thread only.
#ifndef PAGEMILL_CC_RUNNER_BATCH_STATE_H_
#define PAGEMILL_CC_RUNNER_BATCH_STATE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/engine/runner.h"  // RunnerLimits
#include "cc/ops/batch_view.h"
#include "cc/runner/block_tables.h"
#include "cc/step/step_plan.h"

namespace pagemill::runner {

// One row of logits: for a token to sample, or for the logprobs of a prompt token that is known.
struct BatchRow {
  int32_t entry = 0;             // index into StepPlan::scheduled
  int32_t prompt_token_id = -1;  // >= 0: the known token that follows this row's
  int32_t draft_token_id = -1;   // >= 0: the draft that follows this row's
};

struct PlaceholderToken {
  int32_t token = 0;  // of the batch
  step::RequestIndex index;
};

class BatchState {
 public:
  // For a program whose block tables are the first `num_groups` of limits.kv_groups; those behind
  // them are of a draft model (draft_model.h).
  BatchState(const engine::RunnerLimits& limits, size_t num_groups);
  explicit BatchState(const engine::RunnerLimits& limits)
      : BatchState(limits, limits.kv_groups.size()) {}

  // kInternal if the plan names a slot that does not exist. Apply() calls it first.
  Status CheckSlots(const step::StepPlan& plan) const;

  // kInternal if the plan contradicts itself or the limits: the scheduler's bug. The requests of
  // that step fail and are released by a later plan; the state stays usable for the others.
  Status Apply(const step::StepPlan& plan);

  // Replaces the drafts of entry `entry` of the last applied plan by as many others.
  void SetDrafts(size_t entry, std::span<const int32_t> token_ids);

  // The drafts of entry `entry`, whose number is `count`.
  std::span<const int32_t> drafts(size_t entry, size_t count) const {
    return std::span(token_ids_)
        .subspan(static_cast<size_t>(query_start_[entry + 1]) - count, count);
  }

  // Results of the last Apply(); valid until the next.
  const ops::StepBatch& view() const { return view_; }
  std::span<const BatchRow> rows() const { return rows_; }
  // Takes the rows, and gives memory for those of later steps.
  void TakeRows(std::vector<BatchRow>* rows) { rows_.swap(*rows); }
  // Tokens of the batch that the plan has placeholders for (step::kPlaceholderTokenId).
  std::span<const PlaceholderToken> placeholders() const { return placeholders_; }
  void SetToken(int32_t token, int32_t id) { token_ids_[static_cast<size_t>(token)] = id; }
  // The request that a slot holds; null if it is free.
  const step::Request* request(step::RequestIndex index) const;

  // Aborts if slots and arrays are inconsistent. O(slots x blocks).
  void CheckIntegrity() const;

 private:
  struct Slot {
    std::shared_ptr<const step::Request> request;  // null: the slot is free
    bool pooling = false;  // a copy of what the request says, which every step reads
  };

  Status CheckCommonBlocks(const step::StepPlan& plan) const;
  Status ApplyEntry(const step::ScheduledRequest& entry, int32_t entry_index);
  Status ApplyStart(const step::ScheduledRequest& entry);
  Status ApplyBlocks(const step::ScheduledRequest& entry);
  Status AppendTokens(const step::ScheduledRequest& entry);
  Status AppendRows(const step::ScheduledRequest& entry, int32_t entry_index);
  void AppendTokenTypes(const step::Request& request, int32_t begin, int32_t end);
  Status AppendPromptEnds(const step::ScheduledRequest& entry);

  const engine::RunnerLimits limits_;
  const bool has_grid_;  // tokens have positions of several dimensions
  std::vector<Slot> slots_;
  std::vector<BlockTables> groups_;  // of the program's KV groups

  // As large as the limits; the step's tokens and requests are the first of them.
  std::vector<int32_t> token_ids_, positions_, query_start_, seq_lens_;
  size_t num_tokens_ = 0, num_requests_ = 0;
  std::vector<int32_t> logits_rows_;
  std::vector<int32_t> grid_positions_;  // if has_grid_
  std::vector<int32_t> token_types_;     // of a pooling model
  std::vector<int32_t> item_ends_;       // if prompts run in one step
  std::vector<BatchRow> rows_;
  std::vector<PlaceholderToken> placeholders_;
  std::vector<ops::KvArrays> kv_;
  ops::StepBatch view_;
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_BATCH_STATE_H_
