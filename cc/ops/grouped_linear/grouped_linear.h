// File: cc/ops/grouped_linear/grouped_linear.h
// Matrix multiply that selects a matrix for each row: the experts of a mixture-of-experts layer.
//
//   y[n, j] = x[n, j] W[ids[n, j]]^T + bias[ids[n, j]]      (or x[n], the same for all j)
//
//   inputs   x     act [N, ...]    K elements a token, which all its J choices share, or J * K
//            ids   i32 [N, J]      experts. An id outside [0, E) names none: that row of y is 0.
//            W     any weight of `linear`, [E, M, K]: the matrices of all experts
//            bias  f32 [E, M], or missing (a view of rank 0)
//   outputs  y     act [N, J, ...]  M elements a choice
//   aliasing       none
//
// W and bias may occur up to kMaxMatrices times, each pair with an output: several products of the
// same rows (gate and up projection), which are sorted and prepared once. The stacks have one
// format, E and K. A call with one pair still has an operand for the bias.
//
// Result: unless a kernel varies with the batch, row (n, j) does not depend on any other row, and has
// the bits of `linear` for this row and this matrix with the kernel of the same name, if it has one.
// Error bounds are those of linear.h.
//
// Packed weights of a stack are those of its matrices one after the other, in `linear`'s layouts.
//
// Workspace: O(rows) for the sorted rows, the prepared x, and a block of rows for each thread.
// Kernels: those of `linear` (linear_kernels.h), and "reference".
#ifndef PAGEMILL_CC_OPS_GROUPED_LINEAR_GROUPED_LINEAR_H_
#define PAGEMILL_CC_OPS_GROUPED_LINEAR_GROUPED_LINEAR_H_

#include <cstddef>
#include <cstdint>

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& GroupedLinearOp();

namespace grouped_linear {

// Index of the weight input of an output.
inline constexpr size_t WeightOperand(size_t output) { return 2 + 2 * output; }
inline constexpr size_t BiasOperand(size_t output) { return 3 + 2 * output; }

// The rows of x or y: row r is choice r % choices of token r / choices.
struct RoutedRows {
  const TensorView& view;
  int64_t choices;
  int64_t step;  // floats between the choices of a token; 0: they share one row

  float* At(int64_t row) const { return view.Row<float>(row / choices) + row % choices * step; }
};

RoutedRows InputRowsOf(const OpCall& call);
RoutedRows OutputRowsOf(const OpCall& call, size_t output);

// W[expert] of a stack as stored, [M, K].
TensorView ExpertView(const TensorView& stack, int64_t expert);

// The bias of the expert's first row, or null.
const float* BiasOf(const OpCall& call, size_t output, int64_t expert);

void RunReference(const OpCall& call, KernelContext& context);
int64_t ReferenceWorkspaceBytes(const OpCall& call, int32_t num_threads);

}  // namespace grouped_linear

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_GROUPED_LINEAR_GROUPED_LINEAR_H_
