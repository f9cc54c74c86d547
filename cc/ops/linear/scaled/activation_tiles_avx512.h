// File: cc/ops/linear/scaled/activation_tiles_avx512.h
// Chunks of x in units of four bytes, which the AVX-512 kernels broadcast. A chunk is divided into
// tiles of nearly equal heights, at most kTileN rows; a tile is
//
//   [rows] RowScale                        (only for x in int8)
//   [units of k][rows][4 bytes]
//
// A unit is a quad of int8, or a pair of bf16, of one row; k goes up to a multiple of
// kPaddedElements with zeros. Inline functions: for files compiled for AVX-512 only.
#ifndef PAGEMILL_CC_OPS_LINEAR_SCALED_ACTIVATION_TILES_AVX512_H_
#define PAGEMILL_CC_OPS_LINEAR_SCALED_ACTIVATION_TILES_AVX512_H_

#include <immintrin.h>

#include <cstdint>

#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/row_tiles.h"
#include "cc/ops/linear/scaled/packed_scaled.h"

namespace pagemill::ops::scaled {
namespace {

constexpr int64_t kUnitBytes = 4;

// Scale of the integers of a row of x, and the correction of their sums for the offset of the
// weights.
struct RowScale {
  float scale;
  int32_t start;  // minus kInt8Offset times the sum of the row's integers
};

// Rows [begin, end) of a chunk and their place in it.
struct ActivationTile {
  int64_t begin;
  int64_t end;
  int64_t offset;
  int64_t rows() const { return end - begin; }
};

// The tiles of a chunk of `n` rows with `units` units each and `row_bytes` bytes before them.
struct ActivationShape {
  int64_t n;
  int64_t units;
  int64_t row_bytes;
  int64_t tile_rows;

  int64_t tiles() const { return (n + tile_rows - 1) / tile_rows; }
  ActivationTile Tile(int64_t t) const {
    const int64_t begin = t * n / tiles();
    return {begin, (t + 1) * n / tiles(), begin * (units * kUnitBytes + row_bytes)};
  }
  int64_t bytes() const { return (n * (units * kUnitBytes + row_bytes) + 63) / 64 * 64; }
};

// Calls f<rows, kFirst>(tile), 1 <= rows <= kMax. One function holds the code of all heights.
template <int kMax, bool kFirst, class F>
[[gnu::noinline]] void WithTile(const ActivationTile& tile, const F& f) {
  linear::WithRows<kMax>(tile.rows(),
                         [&]<int kRows>() { f.template operator()<kRows, kFirst>(tile); });
}

// The same for each tile of the chunk; kFirst for the first tile.
template <int kMax, class F>
void ForEachTile(const ActivationShape& shape, const F& f) {
  WithTile<kMax, true>(shape.Tile(0), f);
  for (int64_t t = 1; t < shape.tiles(); ++t) WithTile<kMax, false>(shape.Tile(t), f);
}

[[gnu::always_inline]] inline int64_t PaddedK(int64_t k) {
  return (k + kPaddedElements - 1) / kPaddedElements * kPaddedElements;
}

// The lowest `count` of 16 lanes; count may be out of 0..16.
[[gnu::always_inline]] inline __mmask16 FirstLanes(int64_t count) {
  if (count >= 16) return static_cast<__mmask16>(0xffff);
  return count <= 0 ? static_cast<__mmask16>(0) : static_cast<__mmask16>((1u << count) - 1u);
}

// Stores 16 consecutive units of each of `rows` rows, at most 4, to `to`, with the units of a row
// `stride` bytes apart. Missing rows of `units` are not read.
[[gnu::always_inline]] inline void StoreUnits(const __m512i units[4], int64_t rows, int64_t stride,
                                              uint8_t* to) {
  if (rows < 4) {
    for (int64_t row = 0; row < rows; ++row) {
      alignas(64) int32_t lanes[16];
      _mm512_store_si512(lanes, units[row]);
      for (int i = 0; i < 16; ++i) __builtin_memcpy(to + i * stride + row * 4, &lanes[i], 4);
    }
    return;
  }
  const __m512i a = _mm512_unpacklo_epi32(units[0], units[1]);
  const __m512i b = _mm512_unpackhi_epi32(units[0], units[1]);
  const __m512i c = _mm512_unpacklo_epi32(units[2], units[3]);
  const __m512i d = _mm512_unpackhi_epi32(units[2], units[3]);
  // Unit 4 * i + j of the rows is 128-bit lane i of quads[j].
  const __m512i quads[4] = {_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c),
                            _mm512_unpacklo_epi64(b, d), _mm512_unpackhi_epi64(b, d)};
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const auto store = [&](int unit, __m128i lanes) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + unit * stride), lanes);
    };
    store(j, _mm512_castsi512_si128(quads[j]));
    store(4 + j, _mm512_extracti32x4_epi32(quads[j], 1));
    store(8 + j, _mm512_extracti32x4_epi32(quads[j], 2));
    store(12 + j, _mm512_extracti32x4_epi32(quads[j], 3));
  }
}

}  // namespace
}  // namespace pagemill::ops::scaled

#endif  // PAGEMILL_CC_OPS_LINEAR_SCALED_ACTIVATION_TILES_AVX512_H_
