// File: cc/ops/linear/block_kernels/packed_blocks_asimd.h
// Slices of block formats (packed_blocks.h) in 16-byte registers: decoding before and scaling after
// products. For aarch64 only: everything has internal linkage.
//
// Products take signed bytes. Values of fewer than 8 bits are valid signed and unsigned bytes; a
// flip of the sign bit removes the zero point of those of Q8_0, and codes are looked up without
// one.
#ifndef PAGEMILL_CC_OPS_LINEAR_BLOCK_KERNELS_PACKED_BLOCKS_ASIMD_H_
#define PAGEMILL_CC_OPS_LINEAR_BLOCK_KERNELS_PACKED_BLOCKS_ASIMD_H_

#include <arm_neon.h>

#include <cstdint>

#include "cc/ops/linear/block_kernels/block_walk_inl.h"
#include "cc/ops/linear/packed_blocks.h"
#include "cc/ops/linear/quantized_activations.h"
#include "cc/tensor/dtype.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

// Prefetch distance of weights.
constexpr int64_t kAsimdPrefetchBytes = 8192;
constexpr int kVectors = 4;  // of 4 weight rows: a half of a slice's rows
constexpr int kHalves = 2;

PAGEMILL_INLINE float32x4_t LoadF16(const uint8_t* from) {
  return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(from)));
}

PAGEMILL_INLINE float32x4_t LoadBf16(const uint8_t* from) {
  return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(from)), 16));
}

// 16 bytes as integers, 4 a vector.
PAGEMILL_INLINE void WidenU8(const uint8_t* from, uint32x4_t out[kVectors]) {
  const uint8x16_t bytes = vld1q_u8(from);
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes));
  const uint16x8_t high = vmovl_u8(vget_high_u8(bytes));
  out[0] = vmovl_u16(vget_low_u16(low));
  out[1] = vmovl_u16(vget_high_u16(low));
  out[2] = vmovl_u16(vget_low_u16(high));
  out[3] = vmovl_u16(vget_high_u16(high));
}

PAGEMILL_INLINE void WidenS8(const uint8_t* from, int32x4_t out[kVectors]) {
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(from));
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes));
  const int16x8_t high = vmovl_s8(vget_high_s8(bytes));
  out[0] = vmovl_s16(vget_low_s16(low));
  out[1] = vmovl_s16(vget_high_s16(low));
  out[2] = vmovl_s16(vget_low_s16(high));
  out[3] = vmovl_s16(vget_high_s16(high));
}

// Weights of one half of the rows of a record.
struct Weights {
  const uint8_t* values;
  const uint8_t* high_bits;
  float32x4_t scale[kVectors];
  float32x4_t second_scale[kVectors];
  float32x4_t minimum[kVectors];
  int32x4_t half_scales[2][kVectors];

  PAGEMILL_INLINE static void F16s(const uint8_t* from, float32x4_t (&out)[kVectors]) {
    for (int v = 0; v < kVectors; ++v) out[v] = LoadF16(from + 8 * v);
  }
  PAGEMILL_INLINE static void Bf16s(const uint8_t* from, float32x4_t (&out)[kVectors]) {
    for (int v = 0; v < kVectors; ++v) out[v] = LoadBf16(from + 8 * v);
  }
  PAGEMILL_INLINE static void Products(const uint8_t* head, const uint8_t* bytes,
                                       float32x4_t (&out)[kVectors]) {
    uint32x4_t factors[kVectors];
    WidenU8(bytes, factors);
    for (int v = 0; v < kVectors; ++v) {
      out[v] = vmulq_f32(LoadF16(head + 8 * v), vcvtq_f32_u32(factors[v]));
    }
  }
  PAGEMILL_INLINE static void Integers(const uint8_t* from, int32x4_t (&out)[kVectors]) {
    WidenS8(from, out);
  }
};

template <DType kDType>
PAGEMILL_INLINE Weights LoadWeights(const uint8_t* head, const uint8_t* record, int half) {
  using T = BlockTraits<kDType>;
  Weights w;
  w.values = record + half * (T::kLayout.high_bits != 0 ? T::kLayout.high_bits / 2
                              : kDType == DType::kQ8_0  ? 512
                                                        : 256);
  w.high_bits = record + T::kLayout.high_bits + half * (kDType == DType::kQ6_K ? 128 : 64);
  LoadScales<kDType>(head, record, half * kHalfSliceRows, &w);
  return w;
}

// Moves bits [kBit, kBit + kBits) of each byte to bit kTo.
template <int kBits, int kBit, int kTo = 4>
PAGEMILL_INLINE uint8x16_t MoveBits(uint8x16_t field) {
  const uint8x16_t mask = vdupq_n_u8(((1 << kBits) - 1) << kTo);
  if constexpr (kBit < kTo) return vandq_u8(vshlq_n_u8(field, kTo - kBit), mask);
  if constexpr (kBit == kTo) return vandq_u8(field, mask);
  if constexpr (kBit > kTo) return vandq_u8(vshrq_n_u8(field, kBit - kTo), mask);
}

// Vector v of quad kQuad of the half.
template <DType kDType, int kQuad>
PAGEMILL_INLINE int8x16_t LoadValues(const Weights& w, int v) {
  if constexpr (kDType == DType::kQ8_0) {
    const uint8x16_t values = vld1q_u8(w.values + kQuad * 64 + 16 * v);
    return vreinterpretq_s8_u8(veorq_u8(values, vdupq_n_u8(0x80)));
  }
  if constexpr (kDType == DType::kQ3_K) {
    const uint8x16_t pairs = vld1q_u8(w.values + kQuad / 4 * 64 + 16 * v);
    return vreinterpretq_s8_u8(vorrq_u8(MoveBits<2, kQuad % 4 * 2, 0>(pairs),
                                        MoveBits<1, kQuad, 2>(vld1q_u8(w.high_bits + 16 * v))));
  }
  const uint8x16_t both = vld1q_u8(w.values + kQuad % 4 * 64 + 16 * v);
  uint8x16_t values = kQuad < 4 ? vandq_u8(both, vdupq_n_u8(15)) : vshrq_n_u8(both, 4);
  if constexpr (BlockTraits<kDType>::kHasTable) {
    return vqtbl1q_s8(vld1q_s8(kCodeValues<kDType>.centred), values);
  } else if constexpr (kDType == DType::kQ5_0 || kDType == DType::kQ5_K) {
    values = vorrq_u8(values, MoveBits<1, kQuad>(vld1q_u8(w.high_bits + 16 * v)));
  } else if constexpr (kDType == DType::kQ6_K) {
    const uint8_t* field = w.high_bits + kQuad / 4 * 64 + 16 * v;
    values = vorrq_u8(values, MoveBits<2, kQuad % 4 * 2>(vld1q_u8(field)));
  }
  return vreinterpretq_s8_u8(values);
}

// True if integer sums start with the zero point's part.
template <DType kDType>
constexpr bool kHasStart =
    !BlockTraits<kDType>::kHasMinimum && kDType != DType::kQ8_0 && !BlockTraits<kDType>::kHasTable;

// Scales the integer products of a row of x, with record `x`, and 16 weight rows, and adds them to
// the row's outputs.
template <DType kDType, int kPlanes>
PAGEMILL_INLINE void AddScaled(const Weights& w, const uint8_t* x, const int32x4_t sums[kVectors],
                               float* y) {
  const float scale = ReadFloat(x + kScaleAt<kPlanes>);
  for (int v = 0; v < kVectors; ++v) {
    float32x4_t sum = vld1q_f32(y + 4 * v);
    sum = vfmaq_f32(sum, vcvtq_f32_s32(sums[v]), vmulq_n_f32(w.scale[v], scale));
    if constexpr (BlockTraits<kDType>::kHasMinimum) {
      sum = vfmaq_n_f32(sum, w.minimum[v], ReadFloat(x + kOffsetAt<kPlanes>));
    }
    vst1q_f32(y + 4 * v, sum);
  }
}

// The same for blocks with two scales: `first` and `second` are products of the halves.
template <int kPlanes>
PAGEMILL_INLINE void AddHalves(const Weights& w, const uint8_t* x, const int32x4_t first[kVectors],
                               const int32x4_t second[kVectors], float* y) {
  const float scale = ReadFloat(x + kScaleAt<kPlanes>);
  for (int v = 0; v < kVectors; ++v) {
    const float32x4_t scaled = vmulq_f32(vcvtq_f32_s32(first[v]), w.scale[v]);
    const float32x4_t both = vfmaq_f32(scaled, vcvtq_f32_s32(second[v]), w.second_scale[v]);
    vst1q_f32(y + 4 * v, vfmaq_n_f32(vld1q_f32(y + 4 * v), both, scale));
  }
}

// For blocks with half scales: combines the sums of the two halves in `sums`.
PAGEMILL_INLINE void ScaleHalves(const Weights& w, const int32x4_t others[kVectors],
                                 int32x4_t sums[kVectors]) {
  for (int v = 0; v < kVectors; ++v) {
    sums[v] = vmlaq_s32(vmulq_s32(sums[v], w.half_scales[0][v]), others[v], w.half_scales[1][v]);
  }
}

}  // namespace
}  // namespace pagemill::ops::linear

#undef PAGEMILL_INLINE

#endif  // PAGEMILL_CC_OPS_LINEAR_BLOCK_KERNELS_PACKED_BLOCKS_ASIMD_H_
