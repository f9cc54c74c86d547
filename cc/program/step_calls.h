// File: cc/program/step_calls.h
// The calls of a bound program, made once; each step only sets sizes and arrays in them.
//
//   StepCalls calls(bound);
//   calls.Set(batch);
//   for (size_t i = 0; i < bound.ops.size(); ++i) bound.ops[i].kernel->run(calls[i], context);
//
// Set() allocates nothing. Thread safety: none.
#ifndef PAGEMILL_CC_PROGRAM_STEP_CALLS_H_
#define PAGEMILL_CC_PROGRAM_STEP_CALLS_H_

#include <cstddef>
#include <vector>

#include "cc/base/status.h"
#include "cc/ops/batch_view.h"
#include "cc/ops/op.h"
#include "cc/program/bound_program.h"
#include "cc/program/executor_options.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::program {

// kInvalidArgument where a step is larger than the options allow, or its block tables are not those
// of the layout.
Status CheckBatch(const ops::StepBatch& batch, const ExecutorOptions& options,
                  const KvLayout& layout);

class StepCalls {
 public:
  // `bound` outlives the calls, which point into themselves and into it.
  explicit StepCalls(const BoundProgram& bound);
  StepCalls(const StepCalls&) = delete;
  StepCalls& operator=(const StepCalls&) = delete;

  // The batch has passed CheckBatch(). Its arrays lie where the kernels read them.
  void Set(const ops::StepBatch& batch);
  const ops::OpCall& operator[](size_t op) const { return calls_[op]; }
  // Of the last Set().
  const ops::StepArrays& step() const { return batches_[0]; }

 private:
  const BoundProgram& bound_;
  std::vector<TensorView> views_;
  std::vector<ops::BatchView> batches_;  // the step as the layers of each block table see it
  std::vector<ops::OpCall> calls_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_STEP_CALLS_H_
