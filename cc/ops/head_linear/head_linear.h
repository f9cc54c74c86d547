// File: cc/ops/head_linear/head_linear.h
// Matrix multiply with a matrix for each head: in latent attention, the key and value projections,
// absorbed into queries and results.
//
//   y[n, j] = x[n, j] W[j]^T       or, with transposed = 1, x[n, j] W[j]
//
//   inputs   x    act [N, J, K]
//            W    f32, bf16, f16, a block format, packed integers or 8 bits with scales
//                 (cc/tensor/quantized.h) [J, M, K], transposed [J, K, M]; matrices may have gaps
//                 (rows of a larger matrix each)
//   outputs  y    act or f32 [N, J, M]
//   attributes    transposed = 0
//   aliasing      none
//
// Result: the product with the dequantized weights in float. The bits of y[n] depend on x[n] and W
// alone. Without `transposed` they are those of `linear` in the kernel of the same name. Kernels
// other than the reference round weights with scales to bf16 (scaled_heads.h), by at most 2^-9 of
// each.
//
// Error bound: |y - exact| <= LinearErrorBound(K) * sum_k |x_k w_k| (linear.h); with `transposed`,
// each output is one chain of K multiply-adds, and the bound is K * 2^-24 * sum_k |x_k w_k|.
//
// Kernels: "avx512", "avx2", "portable", "reference".
#ifndef PAGEMILL_CC_OPS_HEAD_LINEAR_HEAD_LINEAR_H_
#define PAGEMILL_CC_OPS_HEAD_LINEAR_HEAD_LINEAR_H_

#include <cstdint>

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& HeadLinearOp();

namespace head_linear {
void RunReference(const OpCall& call, KernelContext& context);
int64_t ReferenceWorkspaceBytes(const OpCall& call, int32_t num_threads);
}  // namespace head_linear

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_HEAD_LINEAR_HEAD_LINEAR_H_
