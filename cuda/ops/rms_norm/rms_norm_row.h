// File: cuda/ops/rms_norm/rms_norm_row.h
// Root mean square normalization of a row by a block, for kernels that have made the row.
#ifndef PAGEMILL_CUDA_OPS_RMS_NORM_RMS_NORM_ROW_H_
#define PAGEMILL_CUDA_OPS_RMS_NORM_RMS_NORM_ROW_H_

#include <cstdint>

#include "cuda/gpu_reduce.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// Elements of a row for each thread: with the largest block, chains of sums have 64 elements for
// rows of 2^16, and an error below 64 * 2^-24 in the sum, half of that in the root.
inline constexpr int64_t kNormElementsPerThread = 4;

// y = x * (mean of squares + eps)^-0.5 * (w + offset). Every thread of the block calls it; x, and y
// if it is x, are read and written by the thread that has the element.
template <typename T>
PAGEMILL_DEVICE void NormalizeRow(const T* x, const float* w, T* y, int64_t size, float eps,
                                  float offset) {
  float squares = 0;
  for (int64_t i = ThreadIndex().x; i < size; i += BlockSize().x) {
    squares += ToFloat(x[i]) * ToFloat(x[i]);
  }
  const float factor = InverseSqrt(BlockSum(squares) / static_cast<float>(size) + eps);
  for (int64_t i = ThreadIndex().x; i < size; i += BlockSize().x) {
    y[i] = FromFloat<T>(ToFloat(x[i]) * factor * (w[i] + offset));
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_RMS_NORM_RMS_NORM_ROW_H_
