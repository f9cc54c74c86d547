// File: cc/program/executor.h
// Runs steps of a bound program: batch in, named outputs out. Implemented natively
// (native_executor.h), on devices (device/device_executor.h), and by the torch executor through the
// bindings.
//
//   PAGEMILL_RETURN_IF_ERROR(executor->Enqueue(batch));    // the step begins
//   ...                                              // another may begin here
//   PAGEMILL_RETURN_IF_ERROR(executor->Collect(&output));  // waits for the oldest
//
// max_steps_in_flight() says how many steps may be in flight; samples() says whether the executor
// draws tokens; pipelined() says whether steps in flight are in different stages.
#ifndef PAGEMILL_CC_PROGRAM_EXECUTOR_H_
#define PAGEMILL_CC_PROGRAM_EXECUTOR_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "cc/base/status.h"
#include "cc/ops/batch_view.h"
#include "cc/ops/row_maxima.h"
#include "cc/ops/sample/row_adjustments.h"
#include "cc/ops/sample/row_draw.h"
#include "cc/ops/sample/token_scores.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::program {

// One output of the program in the last step.
struct OutputView {
  std::string_view name;  // "logits", "pooled", "hidden.3"
  TensorView view;        // "logits" [logits_rows, vocab] "pooled" [requests or tokens, dim] f32
};

struct ExecutorOutput {
  std::span<const OutputView> outputs;
  // [logits_rows], returned instead of logits (which then have rank 0) if the batch requests only
  // maxima (argmax_columns) and the executor supports it. After Sample() the columns are the drawn
  // tokens.
  std::span<const ops::RowMaximum> maxima;
  std::span<const ops::TokenScores> scores;  // of StepDraws::scored, in its order

  // Rank 0 if the program has no output of this name.
  TensorView Find(std::string_view name) const {
    for (const OutputView& output : outputs) {
      if (output.name == name) return output.view;
    }
    return {};
  }
  TensorView logits() const { return Find("logits"); }
  TensorView pooled() const { return Find("pooled"); }
};

// In ops::StepArrays::token_ids: the token that the previously enqueued step chose for its row
// `row`, by argmax or by drawing. For executors with more than one step in flight that are not
// pipelined, if that step requested maxima (argmax_columns): the next step can be enqueued before
// the host knows the id. Every rank of a group computes the same ids by itself.
constexpr int32_t TokenOfRow(int32_t row) { return -1 - row; }

// How to choose the tokens of a step. Borrowed for a call of Sample().
struct StepDraws {
  std::span<const ops::RowDraw> rows;  // one for each row of logits
  // The masks that RowDraw::mask refers to, concatenated: one bit per column of argmax_columns
  // (cc/step/token_mask.h). A row whose mask allows no token has column -1 and logit -inf, as a row
  // without logits does.
  std::span<const uint32_t> masks = {};
  // What changes rows of logits behind their masks (cc/ops/sample/row_adjustments.h). Tokens are
  // counted first, in slots, as many as a step may have requests: the counts stay from step to
  // step, and are undefined, until the slot is cleared, behind a Sample() that fails.
  // TokenOfInput() refers to the step's tokens. Then biases are added and penalties applied.
  std::span<const int32_t> cleared_slots = {};
  std::span<const ops::TokenCount> counts = {};  // no two of one slot and token
  std::span<const ops::LogitBias> biases = {};   // no two of one row and token
  std::span<const ops::RowPenalties> penalties = {};  // no two of one row; drafts are among the ids
  // Of which log probabilities are wanted, by logits from before anything changed them. At most as
  // many of these rows may be changed, by a mask, a bias or penalties, as a step may have requests.
  std::span<const ops::ScoredRow> scored = {};
};

// 1. Enqueue() starts a step, which computes the batch and updates the KV cache, and may return
//    before it is done. The batch need not outlive the call. Steps take effect in order.
// 2. Collect() waits for the oldest uncollected step. The executor owns the output's memory, which
//    stays valid until max_steps_in_flight() more steps are enqueued, or the next is collected.
// 3. If either fails, the step is over: a step whose Enqueue() failed must not be collected.
//    Earlier steps are not affected.
// 4. Sample(), for executors with samples(), chooses a token from each row of logits of the step
//    enqueued last, which must have requested maxima. It is called before the next Enqueue() and
//    before that step is collected, at most once per step; not calling it keeps the largest of
//    every row. It may return before it is done. If it fails, the step must still be collected.
//
// Thread safety: used by one thread at a time.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual Status Enqueue(const ops::StepBatch& batch) = 0;
  virtual Status Collect(ExecutorOutput* output) = 0;
  virtual Status Sample(const StepDraws& draws) {
    (void)draws;
    return Unimplemented("this executor draws no tokens");
  }

  // Runs one step. No other may be in flight.
  Status Execute(const ops::StepBatch& batch, ExecutorOutput* output) {
    PAGEMILL_RETURN_IF_ERROR(Enqueue(batch));
    return Collect(output);
  }

  // Steps that may be enqueued and not collected. 1: Enqueue() or Collect() waits for the step.
  int32_t max_steps_in_flight() const { return max_steps_in_flight_; }
  bool samples() const { return samples_; }
  // Steps in flight are in different stages of the model, each of which computes one at a time, the
  // last in Collect(). So there are as many stages as steps in flight, and a step has no token that
  // another one in flight gives.
  bool pipelined() const { return pipelined_; }

 protected:
  explicit Executor(int32_t max_steps_in_flight = 1, bool samples = false, bool pipelined = false)
      : max_steps_in_flight_(max_steps_in_flight), samples_(samples), pipelined_(pipelined) {}

 private:
  const int32_t max_steps_in_flight_;
  const bool samples_;
  const bool pipelined_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_EXECUTOR_H_
