// File: cuda/ops/linear/rounding_scale.h
// Activations that kernels round to 8 bits, with a scale: the largest magnitude of a row, or of a
// part of it, becomes the largest number of the type.
//
//   const float largest = BlockReduce(own, LargerMagnitude{});
//   const auto scale = RoundingScale::Of(largest, /*largest_number=*/127);
//   ... x * scale.inverse is -127 to 127 ...
//
//   const auto columns = EightColumns::Load(x[row] + k);  // bf16, aligned
//   ... columns.Largest(), columns.values[i] ...
#ifndef PAGEMILL_CUDA_OPS_LINEAR_ROUNDING_SCALE_H_
#define PAGEMILL_CUDA_OPS_LINEAR_ROUNDING_SCALE_H_

#include <cstdint>

#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

inline constexpr uint32_t kMagnitudeBits = 0x7fffffff;
inline constexpr float kLargestF8E4M3 = 448;

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

// Some columns of a row of x.
struct EightColumns {
  static constexpr int kCount = 8;
  using Stored = Vector<BFloat16, kCount>;

  float values[kCount];

  PAGEMILL_DEVICE static EightColumns Of(const Stored& stored) {
    EightColumns columns;
    PAGEMILL_UNROLL
    for (int i = 0; i < kCount; ++i) columns.values[i] = ToFloat(stored.values[i]);
    return columns;
  }
  PAGEMILL_DEVICE static EightColumns Load(const BFloat16* from) {
    const Stored stored = *reinterpret_cast<const Stored*>(from);  // one load, not one for each
    return Of(stored);
  }
  PAGEMILL_DEVICE float Largest() const {
    float largest = values[0];
    PAGEMILL_UNROLL
    for (int i = 1; i < kCount; ++i) largest = LargerMagnitude()(largest, values[i]);
    return largest;
  }
  // As e4m3, to an aligned place.
  PAGEMILL_DEVICE void StoreRounded(float inverse, uint8_t* to) const {
    Vector<uint32_t, 2> rounded;
    PAGEMILL_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float* const four = values + 4 * i;
      rounded.values[i] = PackFloat8(four[0] * inverse, four[1] * inverse, four[2] * inverse,
                                     four[3] * inverse);
    }
    *reinterpret_cast<Vector<uint32_t, 2>*>(to) = rounded;
  }
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_ROUNDING_SCALE_H_
