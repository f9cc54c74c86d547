// `linear` with block-format weights in panels (block_panel.h) and activations quantized to
// integers (block_strip.h), multiplied by SDOT.
//
// SDOT multiplies signed bytes. Values of fewer than 8 bits are both; those of Q8_0 lose their zero
// point by a flip of the sign bit.
#include <arm_neon.h>

#include <cstdint>

#include "cc/ops/linear/block_panel.h"
#include "cc/ops/linear/block_strip.h"
#include "cc/ops/linear/packed_kernel_set.h"

#define PM_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

constexpr int64_t kMaxStripRows = 32;
constexpr int kVectors = 4;  // of 4 weight rows: a half of a panel's rows
constexpr int kHalves = 2;
// Rows of x whose sums are worked on together: 16 registers of sums.
template <int kPlanes>
constexpr int kRowsAtOnce = 4 / kPlanes;

// One half of the rows of a record.
struct Weights {
  const uint8_t* values;
  const uint8_t* high_bits;
  float32x4_t scale[kVectors];
  float32x4_t minimum[kVectors];
  int32x4_t half_scales[2][kVectors];
};

PM_INLINE float32x4_t LoadF16(const uint8_t* from) {
  return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(from)));
}

// 16 bytes as integers, 4 a vector.
PM_INLINE void WidenU8(const uint8_t* from, uint32x4_t out[kVectors]) {
  const uint8x16_t bytes = vld1q_u8(from);
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes));
  const uint16x8_t high = vmovl_u8(vget_high_u8(bytes));
  out[0] = vmovl_u16(vget_low_u16(low));
  out[1] = vmovl_u16(vget_high_u16(low));
  out[2] = vmovl_u16(vget_low_u16(high));
  out[3] = vmovl_u16(vget_high_u16(high));
}

PM_INLINE void WidenS8(const uint8_t* from, int32x4_t out[kVectors]) {
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(from));
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes));
  const int16x8_t high = vmovl_s8(vget_high_s8(bytes));
  out[0] = vmovl_s16(vget_low_s16(low));
  out[1] = vmovl_s16(vget_high_s16(low));
  out[2] = vmovl_s16(vget_low_s16(high));
  out[3] = vmovl_s16(vget_high_s16(high));
}

// Scales in a head times bytes in a record.
PM_INLINE void LoadProducts(const uint8_t* head, const uint8_t* bytes, float32x4_t out[kVectors]) {
  uint32x4_t factors[kVectors];
  WidenU8(bytes, factors);
  for (int v = 0; v < kVectors; ++v) {
    out[v] = vmulq_f32(LoadF16(head + 8 * v), vcvtq_f32_u32(factors[v]));
  }
}

template <DType kDType>
PM_INLINE Weights LoadWeights(const uint8_t* head, const uint8_t* record, int half) {
  using T = BlockTraits<kDType>;
  constexpr BlockPanelLayout kLayout = T::kLayout;
  const int64_t row = half * kPanelHalfRows;
  Weights w;
  w.values = record + half * (kDType == DType::kQ8_0 ? 512 : 256);
  w.high_bits = record + kLayout.high_bits + half * (T::kHasHalfScales ? 128 : 64);
  if constexpr (T::kHasHalfScales) {
    for (int v = 0; v < kVectors; ++v) w.scale[v] = LoadF16(head + 2 * row + 8 * v);
    WidenS8(record + kLayout.scales + row, w.half_scales[0]);
    WidenS8(record + kLayout.scales + kPanelRows + row, w.half_scales[1]);
  } else if constexpr (T::kHasHead) {
    LoadProducts(head + 2 * row, record + kLayout.scales + row, w.scale);
    LoadProducts(head + 64 + 2 * row, record + kLayout.minima + row, w.minimum);
  } else {
    for (int v = 0; v < kVectors; ++v) {
      w.scale[v] = LoadF16(record + kLayout.scales + 2 * row + 8 * v);
      if constexpr (T::kHasMinimum) {
        w.minimum[v] = LoadF16(record + kLayout.minima + 2 * row + 8 * v);
      }
    }
  }
  return w;
}

// Bits kBit and up, kBits of them, of each byte to bit 4.
template <int kBits, int kBit>
PM_INLINE uint8x16_t HighBits(uint8x16_t field) {
  const uint8x16_t mask = vdupq_n_u8(kBits == 1 ? 0x10 : 0x30);
  if constexpr (kBit < 4) return vandq_u8(vshlq_n_u8(field, 4 - kBit), mask);
  if constexpr (kBit == 4) return vandq_u8(field, mask);
  if constexpr (kBit > 4) return vandq_u8(vshrq_n_u8(field, kBit - 4), mask);
}

// Vector v of quad kQuad of the half.
template <DType kDType, int kQuad>
PM_INLINE int8x16_t LoadValues(const Weights& w, int v) {
  if constexpr (kDType == DType::kQ8_0) {
    const uint8x16_t values = vld1q_u8(w.values + kQuad * 64 + 16 * v);
    return vreinterpretq_s8_u8(veorq_u8(values, vdupq_n_u8(0x80)));
  }
  const uint8x16_t both = vld1q_u8(w.values + kQuad % 4 * 64 + 16 * v);
  uint8x16_t values = kQuad < 4 ? vandq_u8(both, vdupq_n_u8(15)) : vshrq_n_u8(both, 4);
  if constexpr (kDType == DType::kQ5_0 || kDType == DType::kQ5_K) {
    values = vorrq_u8(values, HighBits<1, kQuad>(vld1q_u8(w.high_bits + 16 * v)));
  } else if constexpr (kDType == DType::kQ6_K) {
    const uint8_t* field = w.high_bits + kQuad / 4 * 64 + 16 * v;
    values = vorrq_u8(values, HighBits<2, kQuad % 4 * 2>(vld1q_u8(field)));
  }
  return vreinterpretq_s8_u8(values);
}

template <int kPlanes, int kRows>
struct Sums {
  int32x4_t of[kPlanes][kRows][kVectors];
};

// Adds quad kQuad, and those after it up to kEnd.
template <DType kDType, int kPlanes, int kRows, int kQuad, int kEnd>
PM_INLINE void AddQuads(const Weights& w, const uint8_t* x, Sums<kPlanes, kRows>& sums) {
  if constexpr (kQuad < kEnd) {
    int8x16_t values[kVectors];
    for (int v = 0; v < kVectors; ++v) values[v] = LoadValues<kDType, kQuad>(w, v);
    for (int plane = 0; plane < kPlanes; ++plane) {
      for (int r = 0; r < kRows; ++r) {
        const uint8_t* from = x + r * kXRecordBytes<kPlanes> + 32 * plane + 4 * kQuad;
        const int8x16_t quad =
            vreinterpretq_s8_s32(vld1q_dup_s32(reinterpret_cast<const int32_t*>(from)));
        for (int v = 0; v < kVectors; ++v) {
          sums.of[plane][r][v] = vdotq_s32(sums.of[plane][r][v], values[v], quad);
        }
      }
    }
    AddQuads<kDType, kPlanes, kRows, kQuad + 1, kEnd>(w, x, sums);
  }
}

PM_INLINE int32_t ReadInt(const uint8_t* from) {
  int32_t value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

PM_INLINE float ReadFloat(const uint8_t* from) { return __builtin_bit_cast(float, ReadInt(from)); }

// The products of quads [kFirst, kEnd) with both planes of x, from the integer at `offset` of each
// record on, or from 0.
template <DType kDType, int kPlanes, int kRows, int kFirst, int kEnd>
PM_INLINE void MultiplyQuads(const Weights& w, const uint8_t* x, int64_t offset,
                             int32x4_t out[kRows][kVectors]) {
  constexpr bool kHasStart = !BlockTraits<kDType>::kHasMinimum && kDType != DType::kQ8_0;
  Sums<kPlanes, kRows> sums;
  for (int r = 0; r < kRows; ++r) {
    const int32_t start = kHasStart ? ReadInt(x + r * kXRecordBytes<kPlanes> + offset) : 0;
    for (int v = 0; v < kVectors; ++v) {
      sums.of[0][r][v] = vdupq_n_s32(0);
      sums.of[kPlanes - 1][r][v] = vdupq_n_s32(start);
    }
  }
  AddQuads<kDType, kPlanes, kRows, kFirst, kEnd>(w, x, sums);
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      out[r][v] = kPlanes == 1
                      ? sums.of[0][r][v]
                      : vaddq_s32(vshlq_n_s32(sums.of[0][r][v], 7), sums.of[kPlanes - 1][r][v]);
    }
  }
}

// Adds a block of kRows rows of x to their 16 outputs each of this half; row r's at y[r * 32].
template <DType kDType, int kPlanes, int kRows>
PM_INLINE void AddBlock(const Weights& w, const uint8_t* x, float* y) {
  using T = BlockTraits<kDType>;
  constexpr int64_t kAt = kOffsetAt<kPlanes>;
  int32x4_t sums[kRows][kVectors];
  if constexpr (T::kHasHalfScales) {
    int32x4_t others[kRows][kVectors];
    MultiplyQuads<kDType, kPlanes, kRows, 0, 4>(w, x, kAt, sums);
    MultiplyQuads<kDType, kPlanes, kRows, 4, 8>(w, x, kAt + 4, others);
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = vmlaq_s32(vmulq_s32(sums[r][v], w.half_scales[0][v]), others[r][v],
                               w.half_scales[1][v]);
      }
    }
  } else {
    MultiplyQuads<kDType, kPlanes, kRows, 0, kQuads>(w, x, kAt, sums);
  }
  for (int r = 0; r < kRows; ++r) {
    const uint8_t* record = x + r * kXRecordBytes<kPlanes>;
    const float scale = ReadFloat(record + kScaleAt<kPlanes>);
    for (int v = 0; v < kVectors; ++v) {
      float32x4_t sum = vld1q_f32(y + r * kPanelRows + 4 * v);
      sum = vfmaq_f32(sum, vcvtq_f32_s32(sums[r][v]), vmulq_n_f32(w.scale[v], scale));
      if constexpr (T::kHasMinimum) {
        sum = vfmaq_n_f32(sum, w.minimum[v], ReadFloat(record + kAt));
      }
      vst1q_f32(y + r * kPanelRows + 4 * v, sum);
    }
  }
}

// The rows of the strip times one record.
template <DType kDType, int kPlanes>
PM_INLINE void AddRecord(const uint8_t* head, const uint8_t* record, const uint8_t* x, int64_t n,
                         float* sums) {
  constexpr int kRows = kRowsAtOnce<kPlanes>;
  for (int half = 0; half < kHalves; ++half) {
    const Weights w = LoadWeights<kDType>(head, record, half);
    float* y = sums + half * kPanelHalfRows;
    int64_t r = 0;
    for (; r + kRows <= n; r += kRows) {
      AddBlock<kDType, kPlanes, kRows>(w, x + r * kXRecordBytes<kPlanes>, y + r * kPanelRows);
    }
    for (; r < n; ++r) {
      AddBlock<kDType, kPlanes, 1>(w, x + r * kXRecordBytes<kPlanes>, y + r * kPanelRows);
    }
  }
}

template <DType kDType, int kPlanes>
void MultiplyPanel(const PackedProduct& p) {
  constexpr BlockPanelLayout kLayout = BlockTraits<kDType>::kLayout;
  float sums[kMaxStripRows * kPanelRows];
  for (int64_t i = 0; i < p.n * kPanelRows; ++i) sums[i] = 0;
  const uint8_t* x = p.strip;
  const uint8_t* head = p.panel;
  const uint8_t* record = p.panel;
  for (int64_t b = 0; b < p.k / kPanelBlock; ++b) {
    if (BlockTraits<kDType>::kHasHead && b % kRecordsPerHead == 0) {
      head = record;
      record += kLayout.head_bytes;
    }
    AddRecord<kDType, kPlanes>(head, record, x, p.n, sums);
    record += kLayout.record_bytes;
    x += p.n * kXRecordBytes<kPlanes>;
  }
  for (int64_t n = 0; n < p.n; ++n) {
    const float* from = sums + n * kPanelRows;
    float* y = p.y + n * p.y_stride;
    for (int64_t m = 0; m < p.m; ++m) y[m] = p.bias == nullptr ? from[m] : from[m] + p.bias[m];
  }
}

PM_INLINE void WriteFloat(uint8_t* out, float value) { __builtin_memcpy(out, &value, 4); }
PM_INLINE void WriteInt(uint8_t* out, int32_t value) { __builtin_memcpy(out, &value, 4); }

// 16 integers to bytes at `out`; of two planes, the upper ones there and the lower ones beyond.
template <int kPlanes>
PM_INLINE void StorePlanes(const int32x4_t integers[4], uint8_t* out) {
  int16x4_t upper[4];
  int16x4_t lower[4];
  for (int i = 0; i < 4; ++i) {
    if constexpr (kPlanes == 2) {
      const int32x4_t high = vshrq_n_s32(vaddq_s32(integers[i], vdupq_n_s32(64)), 7);
      upper[i] = vmovn_s32(high);
      lower[i] = vmovn_s32(vsubq_s32(integers[i], vshlq_n_s32(high, 7)));
    } else {
      upper[i] = vmovn_s32(integers[i]);
    }
  }
  const auto store = [](const int16x4_t in[4], uint8_t* to) {
    vst1_s8(reinterpret_cast<int8_t*>(to), vqmovn_s16(vcombine_s16(in[0], in[1])));
    vst1_s8(reinterpret_cast<int8_t*>(to) + 8, vqmovn_s16(vcombine_s16(in[2], in[3])));
  };
  store(upper, out);
  if constexpr (kPlanes == 2) store(lower, out + 32);
}

template <DType kDType, int kPlanes>
PM_INLINE void QuantizeBlock(const float* x, uint8_t* out) {
  using T = BlockTraits<kDType>;
  constexpr float kLargest = kPlanes == 1 ? 127 : 127 * 128;
  float32x4_t values[8];
  // As integers, magnitudes are in the order of their values and NaN is above all.
  uint32x4_t largest = vdupq_n_u32(0);
  for (int i = 0; i < 8; ++i) {
    values[i] = vld1q_f32(x + 4 * i);
    largest = vmaxq_u32(largest, vreinterpretq_u32_f32(vabsq_f32(values[i])));
  }
  const float top = __builtin_bit_cast(float, vmaxvq_u32(largest));
  const bool is_zero = top < kSmallestBlock;
  const float scale = is_zero ? 0 : top * (1 / kLargest);
  const float inverse = is_zero ? 0 : kLargest / top;
  int32x4_t integers[8];
  for (int i = 0; i < 8; ++i) integers[i] = vcvtnq_s32_f32(vmulq_n_f32(values[i], inverse));
  StorePlanes<kPlanes>(integers, out);
  StorePlanes<kPlanes>(integers + 4, out + 16);
  int32_t sums[2];
  for (int half = 0; half < 2; ++half) {
    const int32x4_t* of = integers + 4 * half;
    sums[half] = vaddvq_s32(vaddq_s32(vaddq_s32(of[0], of[1]), vaddq_s32(of[2], of[3])));
  }
  uint8_t* offset = out + kOffsetAt<kPlanes>;
  WriteFloat(out + kScaleAt<kPlanes>, scale);
  constexpr int32_t kZeroPoint = T::kLayout.zero_point;
  WriteInt(offset + 4, T::kHasHalfScales ? -kZeroPoint * sums[1] : 0);
  if constexpr (T::kHasMinimum) {
    WriteFloat(offset, scale * static_cast<float>(sums[0] + sums[1]));
  } else {
    WriteInt(offset, -kZeroPoint * (T::kHasHalfScales ? sums[0] : sums[0] + sums[1]));
  }
}

template <int kPlanes>
void Prepare(DType dtype, const InputRows& x, uint8_t* strip) {
  WithBlockFormat(dtype, [&]<DType kDType>() {
    PrepareRows<kPlanes>(
        x, strip, [](const float* from, uint8_t* to) { QuantizeBlock<kDType, kPlanes>(from, to); });
  });
}

template <int kPlanes>
void Multiply(const PackedProduct& product) {
  WithBlockFormat(product.dtype, [&]<DType kDType>() { MultiplyPanel<kDType, kPlanes>(product); });
}

template <int kPlanes>
constexpr PackedKernelSet kKernels{kMaxStripRows,    BlockPanelBytes,
                                   PackBlockPanel,   BlockStripBytes<kPlanes>,
                                   Prepare<kPlanes>, Multiply<kPlanes>};

}  // namespace

constinit const PackedKernelSet kAsimdDotprodKernels = kKernels<1>;
constinit const PackedKernelSet kAsimdDotprodInt16Kernels = kKernels<2>;

}  // namespace pagemill::ops::linear
