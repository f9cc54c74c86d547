// File: cc/program/executor.h
// Runs one step of a bound program: batch in, named outputs out. Implemented natively
// (native_executor.h) and, through the bindings, by the torch executor.
#ifndef PAGEMILL_CC_PROGRAM_EXECUTOR_H_
#define PAGEMILL_CC_PROGRAM_EXECUTOR_H_

#include <span>
#include <string_view>

#include "cc/base/status.h"
#include "cc/ops/batch_view.h"
#include "cc/ops/row_maxima.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::program {

// One output of the program in the last step.
struct OutputView {
  std::string_view name;  // "logits", "pooled", "hidden.3"
  TensorView view;        // "logits" [logits_rows, vocab] and "pooled" [requests, dim] are f32
};

struct ExecutorOutput {
  std::span<const OutputView> outputs;
  // [logits_rows] instead of logits, which then have rank 0: if the batch wants no more
  // (argmax_columns) and the executor makes use of it.
  std::span<const ops::RowMaximum> maxima;

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

// 1. Execute() is called by one thread at a time; it computes the batch and updates the KV cache.
// 2. The output's memory is the executor's own and stays valid until the next Execute().
class Executor {
 public:
  virtual ~Executor() = default;
  virtual Status Execute(const ops::StepBatch& batch, ExecutorOutput* output) = 0;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_EXECUTOR_H_
