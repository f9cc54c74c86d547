// File: cuda/ops/linear/row_products.h
// Products of rows of x with a row of a weight matrix in the format of a checkpoint, as `linear`
// computes them: kProductLanes threads each sum every kProductLanes-th group of eight columns, then
// add up their sums. So bits depend on the rows and their size alone.
//
//   const float* x[kRowsAtOnce] = ...;        // `rows` of them
//   float sums[kRowsAtOnce];                  // the same in the kProductLanes threads
//   MultiplyWithRow<DType::kQ8_0>(x, rows, weights, columns, sums);
//
// Every thread of a warp calls it, with the same number of columns.
#ifndef PAGEMILL_CUDA_OPS_LINEAR_ROW_PRODUCTS_H_
#define PAGEMILL_CUDA_OPS_LINEAR_ROW_PRODUCTS_H_

#include <cstdint>

#include "cuda/gpu_reduce.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/linear/weight_row.h"

namespace pagemill::gpu {

inline constexpr int kProductLanes = 32;  // for one output, also where warps have 64
inline constexpr int kRowsAtOnce = 4;     // of x, for each weight that is read

template <DType kFormat, typename T>
PAGEMILL_DEVICE void MultiplyWithRow(const T* const (&x)[kRowsAtOnce], int rows,
                                     const uint8_t* weights, int64_t columns,
                                     float (&sums)[kRowsAtOnce]) {
  const int lane = static_cast<int>(ThreadIndex().x) % kProductLanes;
  PAGEMILL_UNROLL
  for (int row = 0; row < kRowsAtOnce; ++row) sums[row] = 0;
  for (int64_t k = lane * kWeightsAtOnce; k < columns; k += kProductLanes * kWeightsAtOnce) {
    const int64_t left = columns - k;
    const int count = left < kWeightsAtOnce ? static_cast<int>(left) : kWeightsAtOnce;
    float of_w[kWeightsAtOnce], of_x[kWeightsAtOnce];
    LoadWeights<kFormat>(weights, k, count, of_w);
    PAGEMILL_UNROLL
    for (int row = 0; row < kRowsAtOnce; ++row) {
      if (row >= rows) break;
      LoadElements(x[row] + k, count, of_x);
      PAGEMILL_UNROLL
      for (int i = 0; i < kWeightsAtOnce; ++i) sums[row] += of_w[i] * of_x[i];
    }
  }
  PAGEMILL_UNROLL
  for (int row = 0; row < kRowsAtOnce; ++row) {
    sums[row] = WarpReduce(sums[row], Sum{}, kProductLanes);
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_ROW_PRODUCTS_H_
