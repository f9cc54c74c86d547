// `linear` with block-format weights in slices (packed_blocks.h) and activations quantized to
// integers (quantized_activations.h), multiplied by SDOT.
#include <arm_neon.h>

#include <cstdint>

#include "cc/ops/linear/block_kernels/block_walk_inl.h"
#include "cc/ops/linear/block_kernels/packed_blocks_asimd.h"
#include "cc/ops/linear/packed_blocks.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/quantized_activations.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

// Rows of x that are multiplied together: 16 registers of sums.
template <int kPlanes>
constexpr int kRowsAtOnce = 4 / kPlanes;

template <int kPlanes, int kRows>
struct Sums {
  int32x4_t of[kPlanes][kRows][kVectors];
};

// Adds quads [kQuad, kEnd).
template <DType kDType, int kPlanes, int kRows, int kQuad, int kEnd>
PAGEMILL_INLINE void AddQuads(const Weights& w, const uint8_t* x, Sums<kPlanes, kRows>& sums) {
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

// Sums of quads [kFirst, kEnd) times both planes of x. Each starts at the integer at `offset` of
// its record, or at 0.
template <DType kDType, int kPlanes, int kRows, int kFirst, int kEnd>
PAGEMILL_INLINE void MultiplyQuads(const Weights& w, const uint8_t* x, int64_t offset,
                                   int32x4_t out[kRows][kVectors]) {
  Sums<kPlanes, kRows> sums;
  for (int r = 0; r < kRows; ++r) {
    const int32_t start = kHasStart<kDType> ? ReadInt(x + r * kXRecordBytes<kPlanes> + offset) : 0;
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

// Adds a block of kRows rows of x to the 16 outputs of each in this half; those of row r are at y[r
// * 32].
template <DType kDType, int kPlanes, int kRows>
PAGEMILL_INLINE void AddBlock(const Weights& w, const uint8_t* x, float* y) {
  using T = BlockTraits<kDType>;
  constexpr int64_t kAt = kOffsetAt<kPlanes>;
  int32x4_t sums[kRows][kVectors];
  if constexpr (T::kHasHalves) {
    int32x4_t others[kRows][kVectors];
    MultiplyQuads<kDType, kPlanes, kRows, 0, 4>(w, x, kAt, sums);
    MultiplyQuads<kDType, kPlanes, kRows, 4, 8>(w, x, kAt + 4, others);
    if constexpr (T::kHasTwoScales) {
      for (int r = 0; r < kRows; ++r) {
        AddHalves<kPlanes>(w, x + r * kXRecordBytes<kPlanes>, sums[r], others[r],
                           y + r * kSliceRows);
      }
      return;
    }
    for (int r = 0; r < kRows; ++r) ScaleHalves(w, others[r], sums[r]);
  } else {
    MultiplyQuads<kDType, kPlanes, kRows, 0, kQuads>(w, x, kAt, sums);
  }
  for (int r = 0; r < kRows; ++r) {
    AddScaled<kDType, kPlanes>(w, x + r * kXRecordBytes<kPlanes>, sums[r], y + r * kSliceRows);
  }
}

// Stores 16 integers as bytes at `out`; of two planes, the upper one at `out` and the lower one
// after it.
template <int kPlanes>
PAGEMILL_INLINE void StorePlanes(const int32x4_t integers[4], uint8_t* out) {
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
PAGEMILL_INLINE void QuantizeBlock(const float* x, uint8_t* out) {
  float32x4_t values[8];
  uint32x4_t largest = vdupq_n_u32(0);
  for (int i = 0; i < 8; ++i) {
    values[i] = vld1q_f32(x + 4 * i);
    largest = vmaxq_u32(largest, vreinterpretq_u32_f32(vabsq_f32(values[i])));
  }
  constexpr int kLevels = kPlanes == 1 ? 127 : 127 * 128;
  const BlockScale by = BlockScaleOf<kLevels>(vmaxvq_u32(largest));
  int32x4_t integers[8];
  for (int i = 0; i < 8; ++i) integers[i] = vcvtnq_s32_f32(vmulq_n_f32(values[i], by.inverse));
  StorePlanes<kPlanes>(integers, out);
  StorePlanes<kPlanes>(integers + 4, out + 16);
  int32_t sums[2];
  for (int half = 0; half < 2; ++half) {
    const int32x4_t* of = integers + 4 * half;
    sums[half] = vaddvq_s32(vaddq_s32(vaddq_s32(of[0], of[1]), vaddq_s32(of[2], of[3])));
  }
  FinishRecord<kDType, kPlanes>(by.scale, sums[0], sums[1], out);
}

// For kKernels (block_walk_inl.h).
template <int kPlanes>
struct SdotBlocks : PlainBlocks<kPlanes> {
  static constexpr int64_t kPrefetchBytes = kAsimdPrefetchBytes;

  template <DType kDType>
  PAGEMILL_INLINE static void Prepare(const InputRows& x, uint8_t* chunk) {
    PrepareRows<kPlanes>(
        x, chunk, [](const float* from, uint8_t* to) { QuantizeBlock<kDType, kPlanes>(from, to); });
  }

  template <DType kDType>
  PAGEMILL_INLINE static void Add(const uint8_t* head, const uint8_t* record, const uint8_t* x,
                                  int64_t n, float* y) {
    constexpr int kRows = kRowsAtOnce<kPlanes>;
    for (int half = 0; half < kHalves; ++half, y += kHalfSliceRows) {
      const Weights w = LoadWeights<kDType>(head, record, half);
      int64_t r = 0;
      for (; r + kRows <= n; r += kRows) {
        AddBlock<kDType, kPlanes, kRows>(w, x + r * kXRecordBytes<kPlanes>, y + r * kSliceRows);
      }
      for (; r < n; ++r) {
        AddBlock<kDType, kPlanes, 1>(w, x + r * kXRecordBytes<kPlanes>, y + r * kSliceRows);
      }
    }
  }
};

}  // namespace

constinit const PackedGemm kAsimdDotprodKernels = kKernels<SdotBlocks<1>>;
constinit const PackedGemm kAsimdDotprodInt16Kernels = kKernels<SdotBlocks<2>>;

}  // namespace pagemill::ops::linear
