// Products of scaled int8 weights with rows of x rounded to int8, by SDOT: a quad of k of 4 outputs
// at a time. Sums over all of k are exact integers (kMaxInt8K), so their order is free.
//
// A chunk of x is tiles of kTileN rows, the last with rows of zeros if it has fewer:
//
//   [kTileN] float scales, [quads of k][kTileN rows][4 bytes]
#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/scaled/packed_scaled.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::scaled {
namespace {

constexpr int kTileN = 4;  // the rows of a register of x
constexpr int kVectors = 4;
constexpr int64_t kGroupRows = 4 * kVectors;  // weight rows that are multiplied together: 16 sums
constexpr int64_t kMaxChunkRows = 8 * kTileN;
constexpr int64_t kScaleBytes = kTileN * sizeof(float);
constexpr int64_t kPrefetchBytes = 2048;

PAGEMILL_INLINE int64_t Quads(int64_t k) { return (k + kQuadBytes - 1) / kQuadBytes; }
PAGEMILL_INLINE int64_t TileBytes(int64_t k) {
  return kScaleBytes + Quads(k) * kTileN * kQuadBytes;
}
PAGEMILL_INLINE int64_t Tiles(int64_t n) { return (n + kTileN - 1) / kTileN; }

int64_t ChunkBytes(DType, int64_t n, int64_t k) { return (Tiles(n) * TileBytes(k) + 63) / 64 * 64; }

// Compared as integers, magnitudes have the order of their values, and NaN is the largest: the
// scale of a row with a NaN is NaN, and so are all its outputs.
PAGEMILL_INLINE float LargestMagnitude(const float* x, int64_t k) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < k; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, sizeof(bits));
    bits &= 0x7fffffffu;
    largest = largest > bits ? largest : bits;
  }
  return __builtin_bit_cast(float, largest);
}

// Stores a row of x as quads kTileN units apart; returns its scale.
float QuantizeRow(const float* x, int64_t k, uint8_t* to) {
  const float top = LargestMagnitude(x, k);
  const bool is_zero = top < kSmallestRow;
  const float inverse = is_zero ? 0 : 127 / top;
  for (int64_t at = 0; at < k; at += kQuadBytes, to += kTileN * kQuadBytes) {
    float values[kQuadBytes] = {};
    const int64_t count = k - at < kQuadBytes ? k - at : kQuadBytes;
    std::memcpy(values, x + at, static_cast<size_t>(count) * sizeof(float));
    int32_t integers[kQuadBytes];
    vst1q_s32(integers, vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(values), inverse)));
    for (int i = 0; i < kQuadBytes; ++i) to[i] = static_cast<uint8_t>(integers[kQuadOrder[i]]);
  }
  return is_zero ? 0 : top * (1.0f / 127);
}

void Prepare(DType, const linear::InputRows& x, uint8_t* chunk) {
  for (int64_t begin = 0; begin < x.n; begin += kTileN, chunk += TileBytes(x.k)) {
    if (!x.Prepares(begin)) continue;
    const int64_t rows = x.n - begin < kTileN ? x.n - begin : kTileN;
    if (rows < kTileN) std::memset(chunk, 0, TileBytes(x.k));
    float scales[kTileN] = {};
    for (int64_t i = 0; i < rows; ++i) {
      scales[i] =
          QuantizeRow(x.rows + (begin + i) * x.stride, x.k, chunk + kScaleBytes + i * kQuadBytes);
    }
    std::memcpy(chunk, scales, sizeof(scales));
  }
}

template <int kRow>
PAGEMILL_INLINE void AddRow(const int8x16_t w[kVectors], int8x16_t x, int32x4_t (*sums)[kVectors]) {
  for (int v = 0; v < kVectors; ++v) {
    sums[kRow][v] = vdotq_laneq_s32(sums[kRow][v], w[v], x, kRow);
  }
}

// Multiplies kN rows of x from `n` on with 16 weight rows of the slice from `first` on.
template <int kN>
void MultiplyTile(const linear::PackedProduct& p, int64_t n, int64_t first) {
  const uint8_t* x = p.activations + n / kTileN * TileBytes(p.k);
  float scales[kTileN];
  std::memcpy(scales, x, sizeof(scales));
  x += kScaleBytes;
  const uint8_t* w = p.weights + first * kQuadBytes;
  int32x4_t sums[kN][kVectors];
  for (int r = 0; r < kN; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = vdupq_n_s32(0);
  }
  const uint8x16_t offset = vdupq_n_u8(kInt8Offset);
  for (int64_t quad = 0; quad < Quads(p.k); ++quad) {
    __builtin_prefetch(w + kPrefetchBytes);
    int8x16_t weights[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(w + 16 * v), offset));
    }
    const int8x16_t rows = vreinterpretq_s8_u8(vld1q_u8(x));
    AddRow<0>(weights, rows, sums);
    if constexpr (kN > 1) AddRow<1>(weights, rows, sums);
    if constexpr (kN > 2) AddRow<2>(weights, rows, sums);
    if constexpr (kN > 3) AddRow<3>(weights, rows, sums);
    w += kSliceQuadBytes;
    x += kTileN * kQuadBytes;
  }
  const int64_t m = p.m - first < kGroupRows ? p.m - first : kGroupRows;
  for (int r = 0; r < kN; ++r) {
    int32_t integers[kGroupRows];
    for (int v = 0; v < kVectors; ++v) vst1q_s32(integers + 4 * v, sums[r][v]);
    float* const y = p.y + (n + r) * p.y_stride + first;
    for (int64_t i = 0; i < m; ++i) {
      const float scale = scales[r] * *p.scales.OfRow(first + i);
      y[i] = static_cast<float>(integers[i]) * scale + (p.bias == nullptr ? 0 : p.bias[first + i]);
    }
  }
}

void Multiply(const linear::PackedProduct& p) {
  for (int64_t first = 0; first < p.m; first += kGroupRows) {
    for (int64_t n = 0; n < p.n; n += kTileN) {
      switch (p.n - n) {
        case 1:
          MultiplyTile<1>(p, n, first);
          break;
        case 2:
          MultiplyTile<2>(p, n, first);
          break;
        case 3:
          MultiplyTile<3>(p, n, first);
          break;
        default:
          MultiplyTile<4>(p, n, first);
      }
    }
  }
}

}  // namespace

constinit const linear::PackedGemm kAsimdDotprodKernels = {
    kMaxChunkRows, ScaledSliceBytes, PackScaledSlice, ChunkBytes, Prepare, Multiply};

}  // namespace pagemill::ops::scaled
