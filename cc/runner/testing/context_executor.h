// File: cc/runner/testing/context_executor.h
// An executor without weights, for tests of the native runner: its KV cache holds the tokens
// themselves, and the logits of a row are those of a sampling::HashModel for the context, which it
// reads through the block table. So wrong pages, positions or tokens give wrong logits.
//
//   sampling::HashModel model({.vocab_size = 12, .context_tokens = 3});
//   ContextExecutor executor(&model, /*num_slots=*/limits.num_blocks * limits.block_size);
//   auto runner = ModelRunner::Create(&executor, &pool, limits);
//
// With several steps in flight it finds maxima, draws tokens, reads those of the step before as an
// executor of that kind does (program::TokenOfRow()), unless it is pipelined, and counts the steps
// that overlap. Its own work is done by Enqueue() and Sample().
//
// As the target of a draft head it gives states ("draft_states"), as the head it reads them. The
// state of a token names the token and which of the two gave it, so the head notices a state that
// is not of the token before.
//
// Thread safety: that of Executor. The model outlives it.
#ifndef PAGEMILL_CC_RUNNER_TESTING_CONTEXT_EXECUTOR_H_
#define PAGEMILL_CC_RUNNER_TESTING_CONTEXT_EXECUTOR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/ops/batch_view.h"
#include "cc/ops/row_maxima.h"
#include "cc/ops/sample/token_scores.h"
#include "cc/program/executor.h"
#include "cc/sampling/testing/hash_model.h"

namespace pagemill::runner {

class ContextExecutor final : public program::Executor {
 public:
  ContextExecutor(const sampling::HashModel* model, int32_t num_slots,
                  int32_t max_steps_in_flight = 1, bool pipelined = false)
      : Executor(max_steps_in_flight, /*samples=*/max_steps_in_flight > 1 && !pipelined, pipelined),
        model_(model),
        kv_(static_cast<size_t>(num_slots), -1),
        givers_(static_cast<size_t>(num_slots), kMissing) {}

  Status Enqueue(const ops::StepBatch& batch) override;
  Status Collect(program::ExecutorOutput* output) override;
  Status Sample(const program::StepDraws& draws) override;

  // Called in each Enqueue(), before it computes; its status is returned if it is not OK.
  std::function<Status(const ops::StepBatch& batch)> on_enqueue;
  // Called in each Collect(); likewise.
  std::function<Status()> on_collect;
  // Called in each Sample(); likewise.
  std::function<Status(const program::StepDraws& draws)> on_sample;
  int32_t row_without_score = -1;  // its log probability is NaN
  bool drafts = false;  // logits are the model's DraftLogits()
  // The token of each column of logits; empty: the same.
  std::vector<int32_t> column_tokens;
  enum class States : uint8_t { kNone, kGives, kReads };
  States states = States::kNone;
  int64_t num_wrong_states = 0;    // of another token than the one before
  int64_t num_missing_states = 0;  // rows of zeros
  // Rows of logits behind a state of the target, whose context has states of the head.
  int64_t num_stale_contexts = 0;
  int64_t num_steps = 0;
  int64_t num_tokens = 0;             // of all steps
  int64_t num_overlapping_steps = 0;  // enqueued while another was not collected
  std::vector<int32_t> token_ids;     // that were run, of all steps
  int64_t num_tokens_of_rows = 0;     // that were read from the step before
  int64_t num_drawn = 0;              // tokens, with a temperature
  int64_t num_masked = 0;             // rows
  int64_t num_adjusted = 0;           // biases, and rows with penalties
  int64_t num_cleared = 0;            // slots whose tokens were counted anew
  int64_t num_scored = 0;             // rows

 private:
  struct Output {
    std::vector<float> logits;
    std::vector<ops::RowMaximum> maxima;  // instead of logits, if there are any
    std::vector<ops::TokenScores> scores;
    std::vector<float> states;
    int64_t rows = 0;
  };
  // Who gave a state: its second element.
  static constexpr float kMissing = 0.0f, kTarget = 1.0f, kHead = 2.0f;
  void ReadStates(const ops::StepBatch& batch);
  void GiveStates(const ops::StepBatch& batch, Output* output) const;
  void Exclude(std::span<const uint32_t> mask, std::span<float> logits, ops::RowMaximum* found);
  void Count(const program::StepDraws& draws);
  void Adjust(const program::StepDraws& draws, Output* output);
  // `logits`: from before they were changed.
  void Score(const program::StepDraws& draws, std::span<const float> logits, Output* output);
  std::vector<int32_t> TokensOf(const ops::StepBatch& batch);
  std::vector<int32_t> ContextOf(const ops::BatchView& view, int32_t token) const;
  // The slots of the tokens up to and including `token`, of its request.
  static std::vector<size_t> SlotsOf(const ops::BatchView& view, int32_t token);

  const sampling::HashModel* model_;
  std::vector<int32_t> kv_;                   // the token in each slot
  std::vector<float> givers_;                 // of the states of these tokens
  std::deque<Output> steps_;                  // enqueued and not collected
  std::vector<int32_t> last_ids_;             // of the step enqueued last
  std::vector<ops::RowMaximum> last_maxima_;  // likewise
  std::map<int32_t, std::map<int32_t, int32_t>> counts_;  // of slots, of tokens
  Output collected_;
  std::vector<program::OutputView> outputs_;
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_TESTING_CONTEXT_EXECUTOR_H_
