// File: cuda/ops/linear/rounding_scale.h
// The scales of activations that kernels round to 8 bits: the largest magnitude of a row, or of a
// part of it, becomes the largest number of the type.
//
//   const float largest = BlockReduce(own, LargerMagnitude{});
//   const auto scale = RoundingScale::Of(largest, /*largest_number=*/127);
//   ... x * scale.inverse is -127 to 127 ...
#ifndef PAGEMILL_CUDA_OPS_LINEAR_ROUNDING_SCALE_H_
#define PAGEMILL_CUDA_OPS_LINEAR_ROUNDING_SCALE_H_

#include <cstdint>

#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

inline constexpr uint32_t kMagnitudeBits = 0x7fffffff;

// As integers, magnitudes have the order of their values, and NaN is the largest.
struct LargerMagnitude {
  PAGEMILL_DEVICE float operator()(float a, float b) const {
    return (FloatToBits(a) & kMagnitudeBits) > (FloatToBits(b) & kMagnitudeBits) ? a : b;
  }
};

struct RoundingScale {
  float scale, inverse;

  // Values that are all below 2^-100 count as 0; with a NaN among them the scale is NaN.
  PAGEMILL_DEVICE static RoundingScale Of(float largest, float largest_number) {
    constexpr float kSmallest = 0x1p-100f;
    const float magnitude = BitsToFloat(FloatToBits(largest) & kMagnitudeBits);
    if (magnitude < kSmallest) return {0, 0};
    return {magnitude * (1 / largest_number), largest_number / magnitude};
  }
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_ROUNDING_SCALE_H_
