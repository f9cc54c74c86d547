// File: cc/ops/scaled_linear/scaled_linear.h
// Matrix multiply with 8-bit weights times scales: y = x (scales * W)^T + bias. What checkpoints
// of int8 ("W8A8") and fp8 weights hold.
//
//   inputs   x       act [N, ...]   rows of K elements; any trailing shape
//            W       i8 or f8_e4m3 [M, K], used as stored. Any alignment.
//            scales  f32 [ceil(M / block_rows), ceil(K / block_columns)]: element (m, k) is worth
//                    W[m, k] * scales[m / block_rows, k / block_columns]
//            bias    f32 [M], or missing (a view of rank 0, or no fourth input)
//   outputs  y       act or f32 [N, ...]   rows of M elements; any trailing shape
//   attributes       block_rows = 1, block_columns = K (a multiple of 4, or K and more): by default
//                    a scale a row. int8_activations = 0: 1 where the weights were made for
//                    activations of 8 bits, so that rounding them needs no other permission.
//   aliasing         none
//
// Several products of one x may be one call, as in `linear`: x, then W, scales and bias of each, at
// most kMaxMatrices, of one dtype and with the same attributes; each has an output and the bits
// that it would have in a call of its own.
//
// Result: each output is a sum in an order that depends on K, block_columns and the kernel alone,
// so y[n] has the same bits whatever other rows are in the call, however many threads work, and
// whichever computes it. NaN weights (f8_e4m3) make their outputs NaN.
//
// Error bounds, with S = sum_k |x_k w_k| + |bias| and w_k the scaled weight. No product is on a
// path of more than K + 16 additions and multiplications in float: those of its block, one for each
// block, the scale, the bias. The reference accumulates in double.
//   kF32   |y - exact| <= ScaledErrorBound(K) * S
//   kBf16  x is rounded to bf16, to the nearest: off by 2^-8 of itself at most; its products with
//          f8_e4m3 (which bf16 holds) are exact in float:
//          |y - exact| <= ScaledBf16ErrorBound(K) * S
//          The instructions take subnormal numbers, results included, for 0.
//   kInt8  each row of x is rounded to integers times X / 127, where X is its largest |x|, so an
//          element is off by X / 254; integers are multiplied and added exactly, K <= kMaxInt8K:
//          |y - exact| <= kScaledInt8Error * X * sum_k |w_k| + 2^-23 * |bias|
//          A row whose X is below 2^-100 counts as 0. Errors of the elements of a row are
//          independent: the typical error is smaller by the root of K.
//
// Kernels: i8: "amx_int8", "avx512_vnni" and on Arm "asimd_dotprod" (kInt8, a scale a row).
// f8_e4m3: "avx512_bf16" (kBf16). Both: "avx512", "avx2", "portable" (ASIMD, VXE, SSE2) and
// "reference".
#ifndef PAGEMILL_CC_OPS_SCALED_LINEAR_SCALED_LINEAR_H_
#define PAGEMILL_CC_OPS_SCALED_LINEAR_SCALED_LINEAR_H_

#include <cstdint>

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& ScaledLinearOp();

// Sums of K products of two int8 are below 2^31: K * 128 * 127. Longer rows are multiplied in
// float.
inline constexpr int64_t kMaxInt8K = int64_t{1} << 17;

inline double ScaledErrorBound(int64_t k) { return (static_cast<double>(k) + 16) * 0x1p-24; }

// Of x in bf16, and of roundings in float of products that may be 2^-8 larger by then.
inline double ScaledBf16ErrorBound(int64_t k) {
  return 0x1p-8 + (static_cast<double>(k) + 16) * 0x1.02p-24;
}

// Half a step of a row of int8 with the roundings of scales and results, as a share of X.
inline constexpr double kScaledInt8Error = 1 / 253.9 + 16 * 0x1p-24;

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SCALED_LINEAR_SCALED_LINEAR_H_
