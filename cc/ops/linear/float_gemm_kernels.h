// File: cc/ops/linear/float_gemm_kernels.h
// What a file compiled for one instruction set gives to linear.cc: three functions over raw
// pointers. float_gemm.h (threads, workspace, choice of path) is compiled once, for the baseline.
// Plain data only: files of different instruction sets share no inline function through it.
#ifndef PAGEMILL_CC_OPS_LINEAR_FLOAT_GEMM_KERNELS_H_
#define PAGEMILL_CC_OPS_LINEAR_FLOAT_GEMM_KERNELS_H_

#include <cstdint>

#include "cc/tensor/dtype.h"

namespace pagemill::ops::linear {

// One call of the op; strides of x and y in floats.
struct Operands {
  DType dtype;             // of the weights
  const uint8_t* weights;  // [m, k], any alignment
  int64_t weight_stride;   // bytes
  const float* bias;       // [m] or null
  const float* x;          // [n, k]
  int64_t x_stride;
  float* y;  // [n, m]
  int64_t y_stride;
  int64_t n;
  int64_t m;
  int64_t k;
};

inline constexpr int64_t kMaxFloatRows = 64;

// Rows [m_begin, m_end) of the weights as floats, at most kMaxFloatRows.
struct FloatRows {
  const uint8_t* rows;  // any alignment
  int64_t stride;       // bytes
  int64_t m_begin;
  int64_t m_end;
};

// Both multiplications accumulate each output in the same order, so their results have equal bits.
struct FloatGemm {
  // `direct` takes at most this many rows of x; it decodes weights in registers as it goes.
  int64_t max_direct_n;
  void (*direct)(const Operands& operands, int64_t m_begin, int64_t m_end);
  // `k` elements of one weight row to floats.
  void (*dequantize)(DType dtype, const uint8_t* row, int64_t k, float* out);
  // Every row of x times the slice.
  void (*multiply)(const Operands& operands, const FloatRows& slice);
};

extern const FloatGemm kPortableKernels;
#if defined(__x86_64__)
extern const FloatGemm kAvx2Kernels;
extern const FloatGemm kAvx512Kernels;
#endif

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_FLOAT_GEMM_KERNELS_H_
