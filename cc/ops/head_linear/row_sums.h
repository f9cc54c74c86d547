// File: cc/ops/head_linear/row_sums.h
// The transposed products of `head_linear`, for each instruction set: weighted sums of the rows of
// a matrix. Plain data and functions only: files compiled for wide instructions include this header
// (docs/build.md).
#ifndef PAGEMILL_CC_OPS_HEAD_LINEAR_ROW_SUMS_H_
#define PAGEMILL_CC_OPS_HEAD_LINEAR_ROW_SUMS_H_

#include <cstdint>

namespace pagemill::ops {

// y[n, 0..columns) = sum_k x[n, k] weights[k, 0..columns).
struct RowSums {
  const float* x = nullptr;  // [n, k], strides in floats
  int64_t x_stride = 0;
  const void* weights = nullptr;  // [k, columns]
  int64_t weight_stride = 0;      // in elements
  float* y = nullptr;             // [n, columns]
  int64_t y_stride = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t columns = 0;
};

struct RowSumKernel {
  void (*f32)(const RowSums& sums);  // by the type of the weights
  void (*bf16)(const RowSums& sums);
};

extern const RowSumKernel kRowSumsPortable;
#if defined(__x86_64__)
extern const RowSumKernel kRowSumsAvx2;
extern const RowSumKernel kRowSumsAvx512;
#endif

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_HEAD_LINEAR_ROW_SUMS_H_
