// File: cc/ops/sparse_relu/sparse_relu.h
// What the largest elements of a row have above a cutoff that the row itself sets, as in the
// feed-forward layers of Gemma 3n:
//
//   y = max(0, x - (mean(x) + deviations sqrt(var(x)))), with the population variance
//
// If the elements of a row are normally distributed, a share Phi(-deviations) of them stays.
//
//   inputs   x  act [N, H]   every run of H elements is one row
//   outputs  y  act [N, H]
//   attributes  deviations: finite; below 0 more than half of a row stays
//   aliasing    y may be x
//
// Result: a row's bits depend on that row and the kernel alone. Error bound: 4e-6 (|mean| + (1 +
// |deviations|) max |x - mean|), for H up to 2^16: mean and variance are summed in fp32, the
// variance from the differences to the mean. A row with a NaN or an infinity is NaN.
//
// Kernels: "portable", "reference" (accumulates in double).
#ifndef PAGEMILL_CC_OPS_SPARSE_RELU_SPARSE_RELU_H_
#define PAGEMILL_CC_OPS_SPARSE_RELU_SPARSE_RELU_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

struct SparseReluArgs {
  TensorView x, y;
  double deviations = 0;
};

SparseReluArgs ToSparseReluArgs(const OpCall& call);
const OpDefinition& SparseReluOp();

void SparseReluReference(const OpCall& call, KernelContext& context);
void SparseReluPortable(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SPARSE_RELU_SPARSE_RELU_H_
