// `linear` with bf16 weights and x rounded to bf16, by BFMMLA, which adds the products of 2 rows of
// x and 2 weight rows over 4 elements of k to 2 x 2 sums.
//
// A slice is two groups of 16 weight rows; a chunk of x is pairs of its rows, the last pair with a
// row of zeros if the number of rows is odd:
//
//   group   [k / 4][16 weight rows][4 elements] bf16
//   pair    [k / 4][2 rows of x][4 elements] bf16
//
// with zeros up to a multiple of 4 elements. Order of accumulation: one chain per output, which
// adds the sum of two products at a time, k ascending; then the bias. Unless the CPU has extended
// bf16 behaviour, BFMMLA rounds each of these sums to odd.
#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "cc/ops/linear/packed_bf16.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/tensor/float16.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

constexpr int64_t kStep = 4;  // elements
constexpr int64_t kStepBytes = 2 * kStep;
constexpr int64_t kGroupRows = 16;
constexpr int kVectors = kGroupRows / 2;
// 16 sums, 2 registers of x and up to 8 of weights: with 3 pairs GCC 12, which loads all weights of
// a step first, runs out of registers.
constexpr int kMaxPairs = 2;
constexpr int64_t kMaxChunkRows = 8 * 2 * kMaxPairs;
// Prefetch distance of weights, which the first rows of a chunk prefetch.
constexpr int64_t kPrefetchBytes = 8192;

PAGEMILL_INLINE int64_t Steps(int64_t k) { return (k + kStep - 1) / kStep; }
PAGEMILL_INLINE int64_t GroupBytes(int64_t k) { return Steps(k) * kGroupRows * kStepBytes; }
PAGEMILL_INLINE int64_t PairBytes(int64_t k) { return Steps(k) * 2 * kStepBytes; }
PAGEMILL_INLINE int64_t ElementsOfStep(int64_t left) { return left < kStep ? left : kStep; }

int64_t SliceBytes(DType, int64_t k) { return kSliceRows / kGroupRows * GroupBytes(k); }

void Pack(const StoredRows& source, int64_t count, uint8_t* slice) {
  std::memset(slice, 0, SliceBytes(source.dtype, source.k));
  for (int64_t row = 0; row < count; ++row) {
    const uint8_t* const from = source.rows + row * source.stride;
    uint8_t* const to =
        slice + row / kGroupRows * GroupBytes(source.k) + row % kGroupRows * kStepBytes;
    for (int64_t step = 0; step < Steps(source.k); ++step) {
      std::memcpy(to + step * kGroupRows * kStepBytes, from + step * kStepBytes,
                  2 * ElementsOfStep(source.k - step * kStep));
    }
  }
}

int64_t ChunkBytes(DType, int64_t n, int64_t k) {
  return ((n + 1) / 2 * PairBytes(k) + 63) / 64 * 64;
}

void Prepare(DType, const InputRows& x, uint8_t* chunk) {
  for (int64_t row = 0; row < (x.n + 1) / 2 * 2; ++row) {
    if (!x.Prepares(row / 2 * 2)) continue;
    uint8_t* const to = chunk + row / 2 * PairBytes(x.k) + row % 2 * kStepBytes;
    const float* const from = x.rows + row * x.stride;
    for (int64_t step = 0; step < Steps(x.k); ++step) {
      uint16_t rounded[kStep] = {};
      const int64_t count = row < x.n ? ElementsOfStep(x.k - step * kStep) : 0;
      if (count == kStep) {
        const bfloat16x4_t four = vcvt_bf16_f32(vld1q_f32(from + step * kStep));
        std::memcpy(rounded, &four, sizeof(rounded));
      } else {
        for (int64_t i = 0; i < count; ++i) rounded[i] = FloatToBf16(from[step * kStep + i]);
      }
      std::memcpy(to + step * 2 * kStepBytes, rounded, sizeof(rounded));
    }
  }
}

PAGEMILL_INLINE bfloat16x8_t Load(const uint8_t* from) {
  return vreinterpretq_bf16_u8(vld1q_u8(from));
}

// Stores row kRow of a pair of rows of x: `columns` of the 16 outputs of a group.
template <int kRow>
PAGEMILL_INLINE void StoreRow(const float32x4_t sums[kVectors], const float* bias, int64_t columns,
                              float* y) {
  float row[kGroupRows];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    vst1_f32(row + 2 * v, kRow == 0 ? vget_low_f32(sums[v]) : vget_high_f32(sums[v]));
  }
  for (int64_t i = 0; i < columns; ++i) y[i] = row[i] + (bias == nullptr ? 0.0f : bias[i]);
}

// Rows of x and outputs of one group of weight rows.
struct Tile {
  const uint8_t* weights;
  const uint8_t* x;  // of the first pair
  const float* bias;
  float* y;         // of the first row of x
  int64_t rows;     // of x
  int64_t columns;  // weight rows
};

template <int kPairs, bool kFirst>
PAGEMILL_INLINE void MultiplyTile(const PackedProduct& o, const Tile& tile) {
  float32x4_t sums[kPairs][kVectors];
#pragma GCC unroll 2
  for (int p = 0; p < kPairs; ++p) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[p][v] = vdupq_n_f32(0);
  }
  const int64_t pair_bytes = PairBytes(o.k);
  const uint8_t* w = tile.weights;
  const uint8_t* x = tile.x;
  for (int64_t step = 0; step < Steps(o.k); ++step, x += 2 * kStepBytes) {
    if constexpr (kFirst) {
      __builtin_prefetch(w + kPrefetchBytes);
      __builtin_prefetch(w + kPrefetchBytes + 64);
    }
    bfloat16x8_t rows[kPairs];
#pragma GCC unroll 2
    for (int p = 0; p < kPairs; ++p) rows[p] = Load(x + p * pair_bytes);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v, w += 2 * kStepBytes) {
      const bfloat16x8_t weights = Load(w);
#pragma GCC unroll 2
      for (int p = 0; p < kPairs; ++p) sums[p][v] = vbfmmlaq_f32(sums[p][v], rows[p], weights);
    }
  }
#pragma GCC unroll 2
  for (int p = 0; p < kPairs; ++p) {
    float* const y = tile.y + 2 * p * o.y_stride;
    StoreRow<0>(sums[p], tile.bias, tile.columns, y);
    if (2 * p + 1 < tile.rows) StoreRow<1>(sums[p], tile.bias, tile.columns, y + o.y_stride);
  }
}

void Multiply(const PackedProduct& o) {
  const int64_t pairs = (o.n + 1) / 2;
  const int64_t tiles = (pairs + kMaxPairs - 1) / kMaxPairs;
  for (int64_t m = 0; m < o.m; m += kGroupRows) {
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t begin = t * pairs / tiles;
      const int64_t count = (t + 1) * pairs / tiles - begin;
      const Tile tile = {.weights = o.weights + m / kGroupRows * GroupBytes(o.k),
                         .x = o.activations + begin * PairBytes(o.k),
                         .bias = o.bias == nullptr ? nullptr : o.bias + m,
                         .y = o.y + 2 * begin * o.y_stride + m,
                         .rows = o.n - 2 * begin < 2 * count ? o.n - 2 * begin : 2 * count,
                         .columns = o.m - m < kGroupRows ? o.m - m : kGroupRows};
      if (count == 1) {
        t == 0 ? MultiplyTile<1, true>(o, tile) : MultiplyTile<1, false>(o, tile);
      } else {
        t == 0 ? MultiplyTile<2, true>(o, tile) : MultiplyTile<2, false>(o, tile);
      }
    }
  }
}

}  // namespace

constinit const PackedGemm kAsimdBf16Kernels = {kMaxChunkRows, SliceBytes, Pack,
                                                ChunkBytes,    Prepare,    Multiply};

}  // namespace pagemill::ops::linear
