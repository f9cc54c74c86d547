// File: cc/program/bound/step_calls.h
// The kernel calls of a bound program, built once; each step only sets sizes and arrays in them.
//
//   StepCalls calls(bound);
//   calls.Set(batch);
//   for (size_t i = 0; i < bound.ops.size(); ++i) bound.ops[i].kernel->run(calls[i], context);
//
// Set() allocates nothing. Thread safety: none.
#ifndef PAGEMILL_CC_PROGRAM_BOUND_STEP_CALLS_H_
#define PAGEMILL_CC_PROGRAM_BOUND_STEP_CALLS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/ops/batch_view.h"
#include "cc/ops/op.h"
#include "cc/program/bound/bound_program.h"
#include "cc/program/executor_options.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/program.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::program {

// kInvalidArgument if a step exceeds the options, or if its block tables or inputs do not match the
// layout or the program.
Status CheckBatch(const ops::StepBatch& batch, const Program& program, const BoundProgram& bound,
                  const ExecutorOptions& options, const KvLayout& layout);

class StepCalls {
 public:
  // `bound` must outlive the calls, which point into themselves and into it.
  explicit StepCalls(const BoundProgram& bound);
  StepCalls(const StepCalls&) = delete;
  StepCalls& operator=(const StepCalls&) = delete;

  // The batch must have passed CheckBatch().
  void Set(const ops::StepBatch& batch);
  const ops::OpCall& operator[](size_t op) const { return calls_[op]; }
  // The arrays of the last Set().
  const ops::StepArrays& step() const { return batches_[0]; }

 private:
  const BoundProgram& bound_;
  std::vector<TensorView> views_;
  std::vector<ops::BatchView> batches_;  // one per block table
  std::vector<ops::OpCall> calls_;
};

// Computes the plans of the step that `calls` is set to; its arrays must be in host memory. `plans`
// has kernels.plan_bytes bytes.
void MakePlans(const KernelSelection& kernels, const StepCalls& calls, std::span<std::byte> plans);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_BOUND_STEP_CALLS_H_
