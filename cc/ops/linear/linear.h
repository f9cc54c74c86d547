// File: cc/ops/linear/linear.h
// Matrix multiply with weights in the checkpoint's format: y = x W^T + bias.
//
//   inputs   x     act [N, ...]   rows of K elements; any trailing shape
//            W     f32, bf16, f16 or a block format [M, K]: K is a multiple of its block size; any
//                  alignment. Or a quantized weight with its parts (cc/tensor/quantized.h): scaled
//                  int8 or fp8, packed integers of AWQ and GPTQ.
//            bias  f32 [M], or missing (a view of rank 0, or no third input)
//   outputs  y     act or f32 [N, ...]   rows of M elements; any trailing shape
//   aliasing       none
//
// One call may multiply x with several matrices (a rewrite creates such calls): x, then W and bias
// of each, at most kMaxMatrices, of one format, with an output each. Each result has the bits of a
// separate call, unless the kernel varies with the batch. x is prepared once, and threads
// synchronize once.
//
// Result: the product with the dequantized weights in float. Each output is a sum in an order that
// depends on K and the kernel alone, so y[n] has the same bits whatever the other rows of the call
// and the number of threads.
//
// Error bound: |y - exact| <= LinearErrorBound(K) * (sum_k |x_k w_k| + |bias|). A sum of K products
// in 4 or more interleaved chains, each at most K/4 additions long, has at most K/4 + 8 roundings
// on the path of any product, each of relative size 2^-24; the reference accumulates in double.
//
// Kernels of Precision::kBf16 round x to bf16, to the nearest, ties to even: the relative error of
// an element is at most 2^-8. Products are exact in float and added in chains of at most K
// additions rounded to nearest, or (Arm) of K/2 sums of two products, each rounded twice to odd,
// with twice the error:
//   |y - exact| <= LinearBf16ErrorBound(K) * (sum_k |x_k w_k| + |bias|)
// Those of GPUs take x in bf16, and round weights of any format in its stead. The instructions of
// CPUs treat subnormal numbers, results included, as 0: a further error of at most
// 2^-126 * sum_k (1 + |x_k| + |w_k|).
//
// For block formats, kernels of Precision::kInt8Block and kInt16Block quantize each row of x in
// blocks of 32 to integers, with scale X / 127, or X / (127 * 128) for kInt16Block, where X is the
// largest |x| of the block, and multiply integers exactly. Those of kMixedBlock use the finer scale
// for blocks with outliers (quantized_activations.h) and the other for the rest. An element is off
// by half a scale at most, so
//   |y - exact| <= sum_k |w_k| * LinearHalfStep(kernel) * X_k
//                  + LinearErrorBound(K) * (sum_k V * X_k + |bias|)
// where X_k is the X of k's block and V the largest |scale * integer| + |minimum| of W's blocks:
// scaled sums are rounded up to three times per block, minima separately. A block whose X is below
// 2^-100 counts as 0. Errors of the elements of a block are independent: the typical error is
// smaller by the root of K. README.md has the perplexity of models.
//
// Packed integers are converted to blocks or bf16 when they are packed
// (cc/ops/quantized/packed_integers.h has the error), except for "reference". The bounds are those
// of the converted weights.
//
// Scaled weights have other bounds, with S = sum_k |x_k w_k| + |bias| and w_k the scaled weight. No
// product is on a path of more than K + 16 additions and multiplications in float: those of its
// block, one for each block, the scale, the bias. NaN weights (f8_e4m3) make their outputs NaN.
//   kF32        |y - exact| <= ScaledErrorBound(K) * S
//   kBf16       products of x in bf16 with f8_e4m3 (which bf16 holds) are exact in float:
//               |y - exact| <= ScaledBf16ErrorBound(K) * S
//   kInt8Block  each row of x is rounded to integers times X / 127, where X is its largest |x|, so
//               an element is off by X / 254; integers are multiplied and added exactly,
//               K <= kMaxInt8K:
//               |y - exact| <= kScaledInt8Error * X * sum_k |w_k| + 2^-23 * |bias|
//               A row whose X is below 2^-100 counts as 0
//   kF8         with f8_e4m3: each row of x, or each 128 columns of it, is rounded to e4m3 times
//               X / 448, where X is the largest |x|, so an element is off by 2^-4 of itself at most
//               or, below X / 448 * 2^-6, by X / 448 * 2^-10. Tensor cores add the products of 32
//               columns with 13 bits below the largest addend, and 128 columns in float:
//               |y - exact| <= kScaledF8Error * S + 2^-18 * X * sum_k |w_k|
//               Errors of elements are independent: the root mean square of many |y - exact|, each
//               divided by the root of sum_k (x_k w_k)^2 + bias^2, is at most kScaledF8Deviation.
//               An X below 2^-100 counts as 0
// Kernels of the last two are allowed by default if the weights were made for them
// (QuantizedFormat::quantized_activations). GPUs alone have kernels of kF8.
//
// Kernels: scaled weights, i8 with a scale a row: "amx_int8", "avx512_vnni" and on Arm
// "asimd_dotprod" (kInt8Block); f8_e4m3: "avx512_bf16" (kBf16). Block formats: "avx512_vnni",
// "avx_vnni_int8", "avx2_int8", on Arm "asimd_i8mm" and "asimd_dotprod", on s390x "vxe_int8"
// (kInt8Block); "avx512_vnni_mixed", "avx_vnni_mixed", "avx2_int8_mixed" (kMixedBlock);
// "avx512_vnni_int16", "asimd_i8mm_int16", "asimd_dotprod_int16" and "vxe_int16" (kInt16Block);
// kernels of one of these precisions give equal bits for finite x. bf16: "amx_bf16", "avx512_bf16"
// and "asimd_bf16" (kBf16), and "onednn" if it is built in (kBf16). All weights: "avx512", "avx2",
// "portable" (ASIMD, VXE, SSE2) and "reference".
#ifndef PAGEMILL_CC_OPS_LINEAR_LINEAR_H_
#define PAGEMILL_CC_OPS_LINEAR_LINEAR_H_

#include <cstdint>

#include "cc/ops/op.h"

namespace pagemill::ops {

// The largest number of matrices of a call.
inline constexpr int64_t kMaxMatrices = 8;
// Bit i: input i is a matrix.
inline constexpr uint32_t kWeightInputs = ((1u << 2 * kMaxMatrices) - 1) / 3 * 2;

const OpDefinition& LinearOp();

inline double LinearErrorBound(int64_t k) { return (static_cast<double>(k) / 4 + 8) * 0x1p-24; }

// Error of rounding x to bf16, and of K + 8 roundings in float of a product that rounding x may
// make larger by 2^-8.
inline double LinearBf16ErrorBound(int64_t k) {
  return 0x1p-8 + (static_cast<double>(k) + 8) * 0x1.02p-24;
}

// Sums of K products of two int8 are below 2^31: K * 128 * 127. Longer rows are multiplied in
// float.
inline constexpr int64_t kMaxInt8K = int64_t{1} << 17;

inline double ScaledErrorBound(int64_t k) { return (static_cast<double>(k) + 16) * 0x1p-24; }

// Error of rounding x to bf16, and of roundings in float of products that rounding x may make
// larger by 2^-8.
inline double ScaledBf16ErrorBound(int64_t k) {
  return 0x1p-8 + (static_cast<double>(k) + 16) * 0x1.02p-24;
}

// Half a step of an int8 row plus the rounding of scales and results, relative to X.
inline constexpr double kScaledInt8Error = 1 / 253.9 + 16 * 0x1p-24;

// Half a step of e4m3, 3 bits behind the point, plus 2^-5 for sums: 4 times 33 addends that lose up
// to 2^-13.
inline constexpr double kScaledF8Error = 0x1p-4 + 0x1p-5;

// Errors are distributed evenly over a step: their root mean square is half a step over the root of
// 3, 0.0361, plus the rounding of sums and results.
inline constexpr double kScaledF8Deviation = 0.04;

// Half a step of a quantized block relative to its largest element: 1 / 254 or 1 / 32512, plus the
// rounding of the scale itself. 0 if activations are not rounded.
inline double LinearHalfStep(const Kernel& kernel) {
  switch (kernel.activations) {
    case Precision::kF32:
    case Precision::kBf16:
    case Precision::kF8:  // of no block format
      return 0;
    case Precision::kInt16Block:
      return 1 / 32250.0;
    case Precision::kMixedBlock:
    case Precision::kInt8Block:
      return 1 / 253.9;
  }
  return 0;
}

namespace linear {
void RunReference(const OpCall& call, KernelContext& context);
// Workspace: one decoded weight row for each thread.
int64_t ReferenceWorkspaceBytes(const OpCall& call, int32_t num_threads);
}  // namespace linear

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_LINEAR_LINEAR_H_
