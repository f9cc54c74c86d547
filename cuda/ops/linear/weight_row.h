// File: cuda/ops/linear/weight_row.h
// Reading rows of weights in the formats of checkpoints, eight columns at a time: f32, bf16, f16 and
// the block formats (cc/ops/block_format/block_layout.h), as stored. Values are those of the CPU's
// decoders, bit for bit.
//
//   float w[8];
//   LoadWeights<DType::kQ4_K>(row, /*first=*/64, /*count=*/8, w);
#ifndef PAGEMILL_CUDA_OPS_LINEAR_WEIGHT_ROW_H_
#define PAGEMILL_CUDA_OPS_LINEAR_WEIGHT_ROW_H_

#include <cstdint>

#include "cc/ops/block_format/block_layout.h"
#include "cc/tensor/dtype.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

inline constexpr int kWeightsAtOnce = 8;

// True for the formats that LoadWeights() reads.
inline bool IsReadableFormat(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ8_0:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
      return true;
    default:
      return false;
  }
}

// `count` elements of T, at a multiple of its size. All of them in one or two loads if the address
// allows it.
template <typename T>
PAGEMILL_DEVICE void LoadElements(const T* from, int count, float (&to)[kWeightsAtOnce]) {
  constexpr int kPerLoad = 16 / sizeof(T);
  using Load = Vector<T, kPerLoad>;
  if (count == kWeightsAtOnce && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    PAGEMILL_UNROLL
    for (int i = 0; i < kWeightsAtOnce; i += kPerLoad) {
      const Load load = *reinterpret_cast<const Load*>(from + i);
      PAGEMILL_UNROLL
      for (int j = 0; j < kPerLoad; ++j) to[i + j] = ToFloat(load.values[j]);
    }
  } else {
    PAGEMILL_UNROLL
    for (int i = 0; i < kWeightsAtOnce; ++i) to[i] = i < count ? ToFloat(from[i]) : 0;
  }
}

PAGEMILL_DEVICE float LoadHalf(const uint8_t* at) { return HalfBitsToFloat(ops::LoadLe16(at)); }

// Eight nibbles of the bytes at `at`, the low or the high ones.
PAGEMILL_DEVICE void LoadNibbles(const uint8_t* at, bool high, int (&to)[kWeightsAtOnce]) {
  PAGEMILL_UNROLL
  for (int i = 0; i < kWeightsAtOnce; ++i) to[i] = high ? at[i] >> 4 : at[i] & 15;
}

// Of |q| below 2^22, without a conversion, which takes as long as several additions.
PAGEMILL_DEVICE float IntegerToFloat(int32_t q) {
  return BitsToFloat(0x4b400000u + static_cast<uint32_t>(q)) - 0x1.8p23f;
}

inline constexpr float kNoMinimum = -0.0f;  // a sum with it has the bits of the other operand

// to = q * d + m.
PAGEMILL_DEVICE void Scale(const int (&q)[kWeightsAtOnce], float d, float m,
                           float (&to)[kWeightsAtOnce]) {
  PAGEMILL_UNROLL
  for (int i = 0; i < kWeightsAtOnce; ++i) {
    to[i] = RoundedProduct(IntegerToFloat(q[i]), d) + m;
  }
}

// Elements [i, i + 8) of a block of 32, at `block`.
template <DType kFormat>
PAGEMILL_DEVICE void LoadFrom32(const uint8_t* block, int i, float (&to)[kWeightsAtOnce]) {
  constexpr ops::BlockLayout kLayout = ops::LayoutOf(kFormat);
  int q[kWeightsAtOnce];
  const float d = LoadHalf(block);
  if constexpr (kFormat == DType::kQ8_0) {
    PAGEMILL_UNROLL
    for (int j = 0; j < kWeightsAtOnce; ++j) {
      q[j] = static_cast<int8_t>(block[kLayout.quants + i + j]);
    }
    Scale(q, d, kNoMinimum, to);
    return;
  }
  LoadNibbles(block + kLayout.quants + i % 16, i >= 16, q);
  if constexpr (kFormat == DType::kQ4_0) {
    PAGEMILL_UNROLL
    for (int j = 0; j < kWeightsAtOnce; ++j) q[j] -= 8;
    Scale(q, d, kNoMinimum, to);
  } else if constexpr (kFormat == DType::kQ4_1) {
    Scale(q, d, LoadHalf(block + 2), to);
  } else if constexpr (kFormat == DType::kQ5_0) {
    const uint32_t fifth = ops::LoadLe32(block + kLayout.high_bits) >> i;
    PAGEMILL_UNROLL
    for (int j = 0; j < kWeightsAtOnce; ++j) {
      q[j] = (q[j] | static_cast<int>(fifth >> j & 1) << 4) - 16;
    }
    Scale(q, d, kNoMinimum, to);
  }
}

// Scale and minimum `s` of Q4_K and Q5_K.
PAGEMILL_DEVICE void LoadScales6(const uint8_t* packed, int s, int* scale, int* minimum) {
  if (s < 4) {
    *scale = packed[s] & 63;
    *minimum = packed[s + 4] & 63;
  } else {
    *scale = (packed[s + 4] & 15) | (packed[s - 4] >> 6) << 4;
    *minimum = packed[s + 4] >> 4 | (packed[s] >> 6) << 4;
  }
}

// Elements [i, i + 8) of a block of 256, at `block`.
template <DType kFormat>
PAGEMILL_DEVICE void LoadFrom256(const uint8_t* block, int i, float (&to)[kWeightsAtOnce]) {
  constexpr ops::BlockLayout kLayout = ops::LayoutOf(kFormat);
  int q[kWeightsAtOnce];
  if constexpr (kFormat == DType::kQ6_K) {
    const int half = i / 128, s = i % 128 / 32, j0 = i % 32;
    LoadNibbles(block + 64 * half + 32 * (s % 2) + j0, s >= 2, q);
    const uint8_t* const high = block + kLayout.high_bits + 32 * half + j0;
    PAGEMILL_UNROLL
    for (int j = 0; j < kWeightsAtOnce; ++j) q[j] = (q[j] | (high[j] >> 2 * s & 3) << 4) - 32;
    const auto scale = static_cast<int8_t>(block[ops::kQ6KScalesOffset + i / 16]);
    Scale(q, LoadHalf(block + ops::kQ6KScaleOffset) * static_cast<float>(scale), kNoMinimum,
          to);
  } else {
    const int s = i / 32;
    int scale, minimum;
    LoadScales6(block + ops::kQ45KScalesOffset, s, &scale, &minimum);
    LoadNibbles(block + kLayout.quants + 32 * (s / 2) + i % 32, s % 2 == 1, q);
    if constexpr (kFormat == DType::kQ5_K) {
      const uint8_t* const fifth = block + kLayout.high_bits + i % 32;
      PAGEMILL_UNROLL
      for (int j = 0; j < kWeightsAtOnce; ++j) q[j] |= (fifth[j] >> s & 1) << 4;
    }
    Scale(q, LoadHalf(block) * static_cast<float>(scale),
          -(LoadHalf(block + 2) * static_cast<float>(minimum)), to);
  }
}

// Columns [first, first + count) of the row at `row`: `first` is a multiple of 8, and `count` is 8,
// or less at the end of a row. Those beyond are 0.
template <DType kFormat>
PAGEMILL_DEVICE void LoadWeights(const uint8_t* row, int64_t first, int count,
                                 float (&to)[kWeightsAtOnce]) {
  constexpr ops::BlockLayout kLayout = ops::LayoutOf(kFormat);
  if constexpr (kFormat == DType::kF32) {
    LoadElements(reinterpret_cast<const float*>(row) + first, count, to);
  } else if constexpr (kFormat == DType::kBF16) {
    LoadElements(reinterpret_cast<const BFloat16*>(row) + first, count, to);
  } else if constexpr (kFormat == DType::kF16) {
    LoadElements(reinterpret_cast<const Half*>(row) + first, count, to);
  } else if constexpr (kLayout.elements == 32) {
    LoadFrom32<kFormat>(row + first / 32 * kLayout.bytes, static_cast<int>(first % 32), to);
  } else {
    LoadFrom256<kFormat>(row + first / 256 * kLayout.bytes, static_cast<int>(first % 256), to);
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_WEIGHT_ROW_H_
