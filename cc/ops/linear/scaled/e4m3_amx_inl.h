// File: cc/ops/linear/scaled/e4m3_amx_inl.h
// Products of scaled f8_e4m3 weights with x rounded to bf16, in AMX tiles of bf16. Generic in the
// tile registers (cc/ops/tiles/tile_band.h). For files compiled for AVX-512; the CPU has VBMI.
//
// A part of a slice, of at most kPartColumns columns with the same scales, is widened to bf16 in
// scratch memory that stays in L1, and multiplied with each band of the chunk. Chunks of x are
// those of `linear` in bf16 (linear_amx_inl.h).
//
// Order of accumulation: in a part as in linear_amx_inl.h; parts ascending, each times its scale;
// then the bias.
#ifndef PAGEMILL_CC_OPS_LINEAR_SCALED_E4M3_AMX_INL_H_
#define PAGEMILL_CC_OPS_LINEAR_SCALED_E4M3_AMX_INL_H_

#include <immintrin.h>

#include <cstdint>

#include "cc/ops/linear/linear_amx_inl.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/scaled/activation_tiles_avx512.h"
#include "cc/ops/linear/scaled/e4m3_vbmi.h"
#include "cc/ops/linear/scaled/packed_scaled.h"
#include "cc/ops/linear/scaled/scaled_outputs_avx512.h"
#include "cc/ops/tiles/tile_band.h"

namespace pagemill::ops::scaled {

template <class Tiles>
struct E4m3Amx {
  using Bf16 = linear::AmxBf16<Tiles>;
  using Band = BandProducts<Tiles, TileProduct::kBf16>;
  static constexpr int64_t kTileRows = Band::kTileRows;
  static constexpr int64_t kRowBytes = Band::kRowBytes;
  static constexpr int64_t kBandRows = Band::kBandRows;
  static constexpr int64_t kBlockColumns = 32;  // of a tile
  static constexpr int64_t kColumnStride = 2 * kRowBytes;
  static constexpr int64_t kBlockBytes = kTileRows * kColumnStride;
  // Few, so that what was stored is loaded from L1 at once: with 256, one row takes a third longer.
  static constexpr int64_t kPartColumns = 64;
  // So that weights are widened for many rows at once, while these stay in L2.
  static constexpr int64_t kMaxChunkRows = 8 * kBandRows;
  static constexpr int64_t kPrefetchBytes = 8192;

  static int64_t ScratchBytes(DType, int64_t) { return kPartColumns / kBlockColumns * kBlockBytes; }

  // Some columns of the slice, and the block of scales that they have.
  struct Part {
    int64_t begin;
    int64_t end;  // a multiple of 32 from `begin`
    int64_t block;
    bool is_first;
    bool is_last;
  };

  // Widens the part of a slice to tiles: [blocks of 32 columns][16 pairs][32 weight rows][2].
  static void WidenPart(const linear::PackedProduct& p, const Part& part) {
    const uint8_t* quad = p.weights + part.begin / kQuadBytes * kSliceQuadBytes;
    uint8_t* to = p.scratch;
    for (int64_t k = part.begin; k < part.end; k += kQuadBytes) {
      _mm_prefetch(reinterpret_cast<const char*>(quad + kPrefetchBytes), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(quad + kPrefetchBytes + 64), _MM_HINT_T0);
      const QuadOfBf16 left = WidenQuad(quad), right = WidenQuad(quad + 64);
      for (int pair = 0; pair < 2; ++pair, to += kColumnStride) {
        _mm512_store_si512(to, left.pairs[pair]);
        _mm512_store_si512(to + kRowBytes, right.pairs[pair]);
      }
      quad += kSliceQuadBytes;
    }
  }

  // Adds a tile of sums, times `scales`, to outputs: rows of x from `n` on, weight rows from
  // `first` on.
  template <int kSums>
  static void AddSums(const linear::PackedProduct& p, const Part& part, int64_t n, int64_t rows,
                      int64_t first, __m512 scales) {
    if (rows <= 0 || p.m <= first) return;
    alignas(64) float sums[kTileRows][kTileRows];
    Tiles::template Store<kSums>(sums, kRowBytes);
    const __mmask16 used = FirstLanes(p.m - first);
    const bool has_bias = part.is_last && p.bias != nullptr;
    const __m512 bias =
        has_bias ? _mm512_maskz_loadu_ps(used, p.bias + first) : _mm512_setzero_ps();
    float* y = p.y + n * p.y_stride + first;
    for (int64_t row = 0; row < rows; ++row, y += p.y_stride) {
      const __m512 before =
          part.is_first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(used, y);
      __m512 sum = _mm512_fmadd_ps(_mm512_load_ps(sums[row]), scales, before);
      if (has_bias) sum = _mm512_add_ps(sum, bias);
      _mm512_mask_storeu_ps(y, used, sum);
    }
  }

  template <bool kTwo>
  static void MultiplyBand(const linear::PackedProduct& p, const Part& part, int64_t begin,
                           int64_t rows) {
    const int64_t block_bytes = rows * kRowBytes;
    const uint8_t* x = p.activations + begin * Bf16::Blocks(p.k) * kRowBytes +
                       part.begin / kBlockColumns * block_bytes;
    const uint8_t* w = p.scratch;
    Band::template Clear<kTwo>();
    for (int64_t k = part.begin; k < part.end; k += kBlockColumns) {
      Band::template Add<kTwo>(x, kRowBytes, w, w + kRowBytes, kColumnStride);
      x += block_bytes;
      w += kBlockBytes;
    }
    const __m512 left = LoadScales(p, 0, part.block), right = LoadScales(p, 16, part.block);
    const int64_t upper = rows < kTileRows ? rows : kTileRows;
    AddSums<0>(p, part, begin, upper, 0, left);
    AddSums<1>(p, part, begin, upper, kTileRows, right);
    if constexpr (kTwo) {
      AddSums<2>(p, part, begin + kTileRows, rows - upper, 0, left);
      AddSums<3>(p, part, begin + kTileRows, rows - upper, kTileRows, right);
    }
  }

  static void MultiplyPart(const linear::PackedProduct& p, const Part& part, bool backwards,
                           int64_t* configured) {
    WidenPart(p, part);
    const int64_t bands = (p.n + kBandRows - 1) / kBandRows;
    for (int64_t i = 0; i < bands; ++i) {
      // Directions alternate, so that a smaller last band needs one configuration for each part.
      const int64_t begin = (backwards ? bands - 1 - i : i) * kBandRows;
      const int64_t rows = Band::RowsOfBand(p.n, begin);
      if (rows != *configured) Band::Configure(rows);
      *configured = rows;
      rows > kTileRows ? MultiplyBand<true>(p, part, begin, rows)
                       : MultiplyBand<false>(p, part, begin, rows);
    }
  }

  // Blocks of scales begin at multiples of 32 columns, or there is one for all.
  static void Multiply(const linear::PackedProduct& p) {
    const int64_t padded = Bf16::Blocks(p.k) * kBlockColumns;
    const int64_t block_columns = p.scales.block_columns < p.k ? p.scales.block_columns : padded;
    int64_t here = 0;
    int64_t* const configured = p.tile_config == nullptr ? &here : p.tile_config;
    bool backwards = false;
    for (int64_t begin = 0, end; begin < padded; begin = end, backwards = !backwards) {
      const int64_t block = begin / block_columns;
      const int64_t left = padded - begin, of_block = (block + 1) * block_columns - begin;
      const int64_t columns = of_block < left ? of_block : left;
      end = begin + (columns < kPartColumns ? columns : kPartColumns);
      MultiplyPart(p, {begin, end, block, begin == 0, end == padded}, backwards, configured);
    }
    if (p.tile_config == nullptr) Tiles::Release();
  }

  static constexpr linear::PackedGemm kKernels = {.max_chunk_rows = kMaxChunkRows,
                                                  .slice_bytes = ScaledSliceBytes,
                                                  .pack = PackScaledSlice,
                                                  .chunk_bytes = Bf16::ChunkBytes,
                                                  .prepare = Bf16::Prepare,
                                                  .multiply = Multiply,
                                                  .scratch_bytes = ScratchBytes,
                                                  .release_tiles = Tiles::Release};
};

}  // namespace pagemill::ops::scaled

#endif  // PAGEMILL_CC_OPS_LINEAR_SCALED_E4M3_AMX_INL_H_
