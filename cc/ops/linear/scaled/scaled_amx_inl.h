// File: cc/ops/linear/scaled/scaled_amx_inl.h
// Products of scaled int8 weights with rows of x rounded to int8, in AMX tiles. Generic in the tile
// registers (cc/ops/tiles/tile_band.h). For files compiled for AVX-512.
//
// A tile of weights is 16 quads of 16 weight rows as stored in the slice (packed_scaled.h); a tile
// of x is 16 rows of 64 elements. Sums over all of k are exact and stay in tiles. A chunk of x is
//
//   [rows] RowScale, up to 64 bytes; then bands of at most kBandRows rows, each
//   [blocks of 64 elements of k][rows][64 bytes]
#ifndef PAGEMILL_CC_OPS_LINEAR_SCALED_SCALED_AMX_INL_H_
#define PAGEMILL_CC_OPS_LINEAR_SCALED_SCALED_AMX_INL_H_

#include <cstdint>
#include <cstring>

#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/scaled/packed_scaled.h"
#include "cc/ops/linear/scaled/scaled_outputs_avx512.h"
#include "cc/ops/linear/scaled/scaled_quantize_avx512.h"
#include "cc/ops/tiles/banded_products.h"

namespace pagemill::ops::scaled {

template <class Tiles>
struct ScaledAmx {
  using Chunk = BandedProducts<Tiles, TileProduct::kBytes>;
  using Band = typename Chunk::Band;
  static constexpr int64_t kTileRows = Band::kTileRows;
  static constexpr int64_t kRowBytes = Band::kRowBytes;
  static constexpr int64_t kBandRows = Band::kBandRows;

  static int64_t Blocks(int64_t k) { return PaddedK(k) / kPaddedElements; }
  static int64_t ScaleBytes(int64_t n) {
    return (n * static_cast<int64_t>(sizeof(RowScale)) + 63) / 64 * 64;
  }

  static int64_t ChunkBytes(DType, int64_t n, int64_t k) {
    return ScaleBytes(n) + n * Blocks(k) * kRowBytes;
  }

  static void Prepare(DType, const linear::InputRows& x, uint8_t* chunk) {
    uint8_t* band = chunk + ScaleBytes(x.n);
    for (int64_t begin = 0; begin < x.n; begin += kBandRows) {
      const int64_t rows = Band::RowsOfBand(x.n, begin);
      for (int64_t i = 0; i < rows; ++i) {
        if (!x.Prepares(begin + i)) continue;
        const float* const from = x.rows + (begin + i) * x.stride;
        float inverse;
        RowScale scale = ScaleOf(from, x.k, &inverse);
        int32_t sum = 0;
        for (int64_t block = 0; block < Blocks(x.k); ++block) {
          _mm512_storeu_si512(band + (block * rows + i) * kRowBytes,
                              QuantizeQuads(from, block * kPaddedElements, x.k, inverse, &sum));
        }
        scale.start = OffsetSum(sum);
        std::memcpy(chunk + (begin + i) * sizeof(scale), &scale, sizeof(scale));
      }
      band += rows * Blocks(x.k) * kRowBytes;
    }
  }

  // Stores the outputs of one tile of sums: rows of x from `n` on, weight rows of the slice from
  // `first` on, whose scales are `columns`.
  template <int kSums>
  static void Store(const linear::PackedProduct& p, int64_t n, int64_t rows, int64_t first,
                    __m512 columns) {
    if (rows <= 0 || p.m <= first) return;
    alignas(64) int32_t sums[kTileRows][kTileRows];
    Tiles::template Store<kSums>(sums, kRowBytes);
    for (int64_t row = 0; row < rows; ++row) {
      RowScale scale;
      std::memcpy(&scale, p.activations + (n + row) * sizeof(scale), sizeof(scale));
      const __m512i sum =
          _mm512_add_epi32(_mm512_load_si512(sums[row]), _mm512_set1_epi32(scale.start));
      StoreOutputs(p, sum, _mm512_mul_ps(columns, _mm512_set1_ps(scale.scale)),
                   p.y + (n + row) * p.y_stride, first);
    }
  }

  static void Multiply(const linear::PackedProduct& p) {
    const __m512 left = LoadScales(p, 0), right = LoadScales(p, kTileRows);
    const auto finish = [&](int64_t begin, int64_t rows) {
      const int64_t upper = rows < kTileRows ? rows : kTileRows;
      Store<0>(p, begin, upper, 0, left);
      Store<1>(p, begin, upper, kTileRows, right);
      Store<2>(p, begin + kTileRows, rows - upper, 0, left);
      Store<3>(p, begin + kTileRows, rows - upper, kTileRows, right);
    };
    Chunk::Multiply(
        {.rows = p.activations + ScaleBytes(p.n),
         .n = p.n,
         .columns = p.weights,
         .blocks = Blocks(p.k),
         .configured = p.tile_config,
         .outputs = reinterpret_cast<const uint8_t*>(p.y),
         .output_stride = p.y_stride * static_cast<int64_t>(sizeof(float))},
        [](int64_t, int64_t rows) { Chunk::Clear(rows); }, finish);
  }

  static constexpr linear::PackedGemm kKernels = {.max_chunk_rows = Chunk::kMaxRows,
                                                  .slice_bytes = ScaledSliceBytes,
                                                  .pack = PackScaledSlice,
                                                  .chunk_bytes = ChunkBytes,
                                                  .prepare = Prepare,
                                                  .multiply = Multiply,
                                                  .release_tiles = Tiles::Release};
};

}  // namespace pagemill::ops::scaled

#endif  // PAGEMILL_CC_OPS_LINEAR_SCALED_SCALED_AMX_INL_H_
