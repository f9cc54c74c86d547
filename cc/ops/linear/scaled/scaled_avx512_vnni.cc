// Products of scaled int8 weights with rows of x rounded to int8, by VPDPBUSD: a quad of k of 16
// outputs at a time. Sums over all of k are exact integers (kMaxInt8K), so their order is free.

// GCC 12 warns of the deliberately undefined registers inside its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <immintrin.h>

#include <cstdint>

#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/scaled/activation_tiles_avx512.h"
#include "cc/ops/linear/scaled/packed_scaled.h"
#include "cc/ops/linear/scaled/scaled_outputs_avx512.h"
#include "cc/ops/linear/scaled/scaled_quantize_avx512.h"
#include "cc/ops/linear/weight_prefetch.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::scaled {
namespace {

constexpr int kTileN = 12;  // 24 sums, 2 registers of weights; elements of x are memory operands
constexpr int64_t kMaxChunkRows = 8 * kTileN;
constexpr int64_t kPrefetchBytes = 16384;

PAGEMILL_INLINE ActivationShape ShapeOf(int64_t n, int64_t k) {
  return {n, PaddedK(k) / kQuadBytes, sizeof(RowScale), kTileN};
}

int64_t ChunkBytes(DType, int64_t n, int64_t k) { return ShapeOf(n, k).bytes(); }

// Converts `rows` rows of x, at most 4, to scales and units.
PAGEMILL_INLINE void PrepareRows(const linear::InputRows& x, int64_t first, int64_t rows,
                                 int64_t stride, RowScale* scales, uint8_t* units) {
  const float* from[4];
  float inverse[4];
  int32_t sums[4] = {};
  for (int64_t i = 0; i < rows; ++i) {
    from[i] = x.rows + (first + i) * x.stride;
    scales[i] = ScaleOf(from[i], x.k, &inverse[i]);
  }
  for (int64_t at = 0; at < x.k; at += 64, units += 16 * stride) {
    __m512i quads[4];
    for (int64_t i = 0; i < rows; ++i) {
      quads[i] = QuantizeQuads(from[i], at, x.k, inverse[i], &sums[i]);
    }
    StoreUnits(quads, rows, stride, units);
  }
  for (int64_t i = 0; i < rows; ++i) scales[i].start = OffsetSum(sums[i]);
}

void Prepare(DType, const linear::InputRows& x, uint8_t* chunk) {
  const ActivationShape shape = ShapeOf(x.n, x.k);
  for (int64_t t = 0; t < shape.tiles(); ++t) {
    const ActivationTile tile = shape.Tile(t);
    if (!x.Prepares(tile.begin)) continue;
    RowScale scales[kTileN];
    uint8_t* const units = chunk + tile.offset + tile.rows() * shape.row_bytes;
    for (int64_t i = 0; i < tile.rows(); i += 4) {
      const int64_t rows = tile.rows() - i < 4 ? tile.rows() - i : 4;
      PrepareRows(x, tile.begin + i, rows, tile.rows() * kUnitBytes, scales + i,
                  units + i * kUnitBytes);
    }
    __builtin_memcpy(chunk + tile.offset, scales, sizeof(RowScale) * tile.rows());
  }
}

// sum += w * x, unsigned times signed bytes. With the intrinsic, GCC 12 copies the sums from
// register to register, which takes half of the time.
PAGEMILL_INLINE void AddProducts(__m512i& sum, __m512i w, __m512i x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
}

// Multiplies kN rows of x with the slice; kFirst if the slice is read for the first time.
template <int kN, bool kFirst>
PAGEMILL_INLINE void MultiplyTile(const linear::PackedProduct& p, const ActivationTile& tile) {
  const uint8_t* w = p.weights;
  RowScale rows[kN];
  __builtin_memcpy(rows, p.activations + tile.offset, sizeof(rows));
  const uint8_t* x = p.activations + tile.offset + sizeof(rows);
  __m512i sums[kN][2];
#pragma GCC unroll 12
  for (int n = 0; n < kN; ++n) sums[n][0] = sums[n][1] = _mm512_set1_epi32(rows[n].start);
  const int64_t quads = (p.k + kQuadBytes - 1) / kQuadBytes;
#pragma GCC unroll 4
  for (int64_t quad = 0; quad < quads; ++quad) {
    if constexpr (kFirst) {
      linear::PrefetchWeights(w + kPrefetchBytes);
      linear::PrefetchWeights(w + kPrefetchBytes + 64);
    }
    const __m512i w0 = _mm512_load_si512(w);
    const __m512i w1 = _mm512_load_si512(w + 64);
#pragma GCC unroll 12
    for (int n = 0; n < kN; ++n) {
      int32_t unit;
      __builtin_memcpy(&unit, x + n * kUnitBytes, kUnitBytes);
      const __m512i both = _mm512_set1_epi32(unit);
      AddProducts(sums[n][0], w0, both);
      AddProducts(sums[n][1], w1, both);
    }
    w += kSliceQuadBytes;
    x += kN * kUnitBytes;
  }
  const __m512 scales[2] = {LoadScales(p, 0), LoadScales(p, 16)};
  float* y = p.y + tile.begin * p.y_stride;
#pragma GCC unroll 12
  for (int n = 0; n < kN; ++n, y += p.y_stride) {
    const __m512 row = _mm512_set1_ps(rows[n].scale);
    StoreOutputs(p, sums[n][0], _mm512_mul_ps(scales[0], row), y, 0);
    if (p.m > 16) StoreOutputs(p, sums[n][1], _mm512_mul_ps(scales[1], row), y, 16);
  }
}

// Not linear::WithRows(): unless each number of rows is compiled as a separate function, GCC 12
// takes registers from the inner loop, which costs a tenth.
template <int kN, bool kFirst>
void TileOf(const linear::PackedProduct& p, const ActivationTile& tile) {
  if constexpr (kN > 1) {
    if (tile.rows() < kN) return TileOf<kN - 1, kFirst>(p, tile);
  }
  MultiplyTile<kN, kFirst>(p, tile);
}

void Multiply(const linear::PackedProduct& p) {
  const ActivationShape shape = ShapeOf(p.n, p.k);
  TileOf<kTileN, true>(p, shape.Tile(0));
  for (int64_t t = 1; t < shape.tiles(); ++t) TileOf<kTileN, false>(p, shape.Tile(t));
}

}  // namespace

constinit const linear::PackedGemm kAvx512VnniKernels = {
    kMaxChunkRows, ScaledSliceBytes, PackScaledSlice, ChunkBytes, Prepare, Multiply};

}  // namespace pagemill::ops::scaled
