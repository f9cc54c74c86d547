// File: cc/ops/linear/linear.h
// Matrix multiply with weights as stored: y = x W^T + bias.
//
//   inputs   x     f32 [N, ...]   rows of K elements; any trailing shape
//            W     f32, bf16, f16 or a block format [M, K], used as it is: K is a multiple of its
//                  block size. Any alignment.
//            bias  f32 [M], or missing (a view of rank 0, or no third input)
//   outputs  y     f32 [N, ...]   rows of M elements; any trailing shape
//   aliasing       none
//
// Result: the product with the dequantized weights in float; activations are never rounded. Each
// output is a sum in an order that depends on K and the kernel alone, so y[n] has the same bits
// whatever other rows are in the call, however many threads work, and whichever computes it.
//
// Error bound: |y - exact| <= LinearErrorBound(K) * (sum_k |x_k w_k| + |bias|). A sum of K products
// in 4 or more interleaved chains, each at most K/4 additions long, has at most K/4 + 8 roundings
// on the path of any product, each of relative size 2^-24; the reference accumulates in double.
//
// Kernels: "avx512", "avx2", "portable" (ASIMD, VXE, SSE2) and "reference".
#ifndef PAGEMILL_CC_OPS_LINEAR_LINEAR_H_
#define PAGEMILL_CC_OPS_LINEAR_LINEAR_H_

#include <cstdint>

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& LinearOp();

inline double LinearErrorBound(int64_t k) { return (static_cast<double>(k) / 4 + 8) * 0x1p-24; }

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_LINEAR_LINEAR_H_
