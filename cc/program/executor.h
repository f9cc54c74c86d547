// File: cc/program/executor.h
// Runs one step of a bound program: batch in, logits or pooled vectors out. Implemented natively
// (native_executor.h) and, through the bindings, by the torch executor.
#ifndef PAGEMILL_CC_PROGRAM_EXECUTOR_H_
#define PAGEMILL_CC_PROGRAM_EXECUTOR_H_

#include <span>

#include "cc/base/status.h"
#include "cc/ops/batch_view.h"
#include "cc/ops/row_maxima.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::program {

struct ExecutorOutput {
  TensorView logits;  // [L, vocab] f32, or rank 0; valid until the next Execute
  TensorView pooled;  // [R, dim] f32, or rank 0
  // [L] instead of logits, which then have rank 0: where the batch wants no more (argmax_columns)
  // and the executor makes use of it.
  std::span<const ops::RowMaximum> maxima;
};

// 1. Execute() is called by one thread at a time; it computes the batch and updates the KV cache.
// 2. The output's memory is the executor's own and stays valid until the next Execute().
class Executor {
 public:
  virtual ~Executor() = default;
  virtual Status Execute(const ops::BatchView& batch, ExecutorOutput* output) = 0;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_EXECUTOR_H_
