// File: cuda/ops/sums/sums_before.h
// Sums of whole numbers over the lanes of a warp before one, for kernels that put things one behind
// the other.
//
//   const int32_t first = SumOfLanesBefore(own);
#ifndef PAGEMILL_CUDA_OPS_SUMS_SUMS_BEFORE_H_
#define PAGEMILL_CUDA_OPS_SUMS_SUMS_BEFORE_H_

#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// The sum of the values of the lanes before this one. T of 4 or 8 bytes.
template <typename T>
PAGEMILL_DEVICE T SumOfLanesBefore(T value) {
  T sum = value;
  for (int step = 1; step < WarpLanes(); step *= 2) {
    const T of_lane = Shuffle(AllLanes(), sum, Lane() < step ? 0 : Lane() - step);
    if (Lane() >= step) sum += of_lane;
  }
  return sum - value;
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_SUMS_SUMS_BEFORE_H_
