// File: cc/program/device/tokens/token_scorer.h
// Log probabilities of a step's tokens on a device (cc/ops/score_tokens). They are those of logits
// from before masks, biases and penalties, so rows that these change are copied before.
//
//   PAGEMILL_ASSIGN_OR_RETURN(ScorerPlan plan, PlanScorer(target, logits, num_slots));
//   PAGEMILL_ASSIGN_OR_RETURN(TokenScorer scorer, TokenScorer::Create(plan, device));
//   PAGEMILL_ASSIGN_OR_RETURN(ScoreBuffer step, scorer.NewBuffer(device));
//   PAGEMILL_RETURN_IF_ERROR(scorer.Check(draws, num_rows));
//   scorer.EnqueueCopies(logits, draws, &step, *stream);
//   ... logits are changed, and tokens drawn ...
//   scorer.EnqueueScores(logits, columns, step, *stream);
//   scorer.EnqueueResults(&step, *stream);  // to the host: then step.Scores()
//
// The device must outlive it. Thread safety: that of Executor.
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_TOKENS_TOKEN_SCORER_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_TOKENS_TOKEN_SCORER_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/base/status.h"
#include "cc/device/device.h"
#include "cc/device/stream.h"
#include "cc/ops/op.h"
#include "cc/ops/sample/token_scores.h"
#include "cc/program/executor.h"
#include "cc/program/kernel_selection.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::program {

// The kernels, and the sizes of what they read and write.
struct ScorerPlan {
  const ops::Kernel* copy = nullptr;
  const ops::Kernel* score = nullptr;
  int64_t num_columns = 0;  // tokens
  int64_t max_rows = 0;     // 0: nothing can be scored
  int64_t num_copies = 0;   // of rows

  int64_t copy_bytes() const { return 4 * num_columns * num_copies; }  // of the copies
  // What a step sends and finds, on the device and, for each step in flight, on the host.
  int64_t step_bytes() const;
};

// For rows of `logits` (at most as many as its shape has), of which `num_slots` may be changed; 0:
// nothing can be scored. The errors of the op table.
StatusOr<ScorerPlan> PlanScorer(const Target& target, const TensorView& logits, int64_t num_slots);

// Host memory of what a step sends and finds.
class ScoreBuffer {
 public:
  // What EnqueueResults() has copied.
  std::span<const ops::TokenScores> Scores() const { return scores_.first(num_scored_); }
  void Clear() { num_scored_ = 0; }

 private:
  friend class TokenScorer;
  device::HostMemory memory_;
  // In `memory_`:
  std::span<ops::ScoredRow> scored_;
  std::span<int32_t> copied_rows_;
  std::span<ops::TokenScores> scores_;
  size_t num_scored_ = 0;
};

class TokenScorer {
 public:
  static StatusOr<TokenScorer> Create(const ScorerPlan& plan, device::Device& device);

  StatusOr<ScoreBuffer> NewBuffer(device::Device& device) const;

  // kInvalidArgument if draws.scored has rows, of `num_rows`, or tokens that do not exist, wants
  // too many of the most likely ones, or has more rows that are changed than there are copies.
  Status Check(const StepDraws& draws, int64_t num_rows) const;

  // Copies the rows of `logits`, in device memory, that are to be scored and changed. `step` must
  // not change until that is done.
  void EnqueueCopies(const TensorView& logits, const StepDraws& draws, ScoreBuffer* step,
                     device::Stream& stream) const;
  // Scores the rows of EnqueueCopies(). `columns`: the token of each row, in device memory.
  void EnqueueScores(const TensorView& logits, const int32_t* columns, const ScoreBuffer& step,
                     device::Stream& stream) const;
  // Copies the scores to the host; `to` must not change until the copy is done.
  void EnqueueResults(ScoreBuffer* to, device::Stream& stream) const;

 private:
  TokenScorer() = default;
  std::byte* copied_rows() const;
  std::byte* scores() const;

  ScorerPlan plan_;
  device::DeviceMemory copies_;  // [num_copies, num_columns]
  device::DeviceMemory memory_;  // scored rows, those that are copied, scores
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_TOKENS_TOKEN_SCORER_H_
