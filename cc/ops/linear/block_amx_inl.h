// File: cc/ops/linear/block_amx_inl.h
// Products of block-format slices with quantized activations (quantized_activations.h) in AMX
// tiles. `Tiles` are the tile registers of the CPU or emulated ones (cc/ops/tiles/tile_band.h).
//
// Integer products are exact and scaled as in the VPDPBUSD kernels, so both give equal bits; chunks
// with too few rows for a tile use VPDPBUSD. For files compiled for AVX-512.
//
// A tile of x holds rows of a block as stored in the chunk, a tile of weights 16 weight rows of it.
// Chunks of more rows than a tile are divided into two groups of equal height, which overlap by one
// row if the number of rows is odd.
#ifndef PAGEMILL_CC_OPS_LINEAR_BLOCK_AMX_INL_H_
#define PAGEMILL_CC_OPS_LINEAR_BLOCK_AMX_INL_H_

#include <cstdint>

#include "cc/ops/linear/linear_amx_inl.h"
#include "cc/ops/linear/packed_blocks.h"
#include "cc/ops/linear/packed_blocks_avx512.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/quantized_activations.h"
#include "cc/ops/tiles/tile_band.h"

namespace pagemill::ops::linear {

// `kFewRows` is the packed GEMM for chunks below kMinTileRows rows; chunks are prepared by it.
template <class Tiles, const PackedGemm* kFewRows, int kPlanes>
struct AmxBlocks {
  static constexpr int64_t kTileRows = 16;
  static constexpr int64_t kMaxChunkRows = 2 * kTileRows;
  static constexpr int64_t kMinTileRows = 8;
  static constexpr int64_t kLineBytes = 64;
  static constexpr int64_t kXBytes = kXRecordBytes<kPlanes>;
  static constexpr int64_t kPrefetchBytes = 4096;

  // Tiles 0 to 3 hold sums, plane p and half h in tile 2 * p + h; 4 and 5 hold x, 6 and 7 weights.
  static constexpr int kXTile = 4;
  static constexpr int kWeightTile = 6;

  // Integer sums of a group of rows, by plane and half of the weight rows.
  struct alignas(64) GroupSums {
    int32_t of[kPlanes][kHalves][kTileRows][kHalfSliceRows];
  };

  static void Configure(int64_t rows, int64_t quads) {
    device::TileConfig config;
    for (int tile = 0; tile < kXTile; ++tile) {
      config.rows[tile] = static_cast<uint8_t>(rows);
      config.row_bytes[tile] = kLineBytes;
    }
    for (int tile = kXTile; tile < kWeightTile; ++tile) {
      config.rows[tile] = static_cast<uint8_t>(rows);
      config.row_bytes[tile] = static_cast<uint16_t>(4 * quads);
    }
    for (int tile = kWeightTile; tile < 8; ++tile) {
      config.rows[tile] = static_cast<uint8_t>(quads);
      config.row_bytes[tile] = kLineBytes;
    }
    Tiles::Configure(config);
  }

  // Multiplies the weights in tiles with a group of rows, whose quads begin at `x`.
  static void MultiplyGroup(const uint8_t* x, GroupSums* sums) {
    Tiles::template Load<kXTile>(x, kXBytes);
    Tiles::template Zero<0>();
    Tiles::template Zero<1>();
    Tiles::template MultiplyBytes<0, kXTile, kWeightTile>();
    Tiles::template MultiplyBytes<1, kXTile, kWeightTile + 1>();
    Tiles::template Store<0>(sums->of[0][0], kLineBytes);
    Tiles::template Store<1>(sums->of[0][1], kLineBytes);
    if constexpr (kPlanes == 2) {
      Tiles::template Load<kXTile + 1>(x + 32, kXBytes);
      Tiles::template Zero<2>();
      Tiles::template Zero<3>();
      Tiles::template MultiplyBytes<2, kXTile + 1, kWeightTile>();
      Tiles::template MultiplyBytes<3, kXTile + 1, kWeightTile + 1>();
      Tiles::template Store<2>(sums->of[1][0], kLineBytes);
      Tiles::template Store<3>(sums->of[1][1], kLineBytes);
    }
  }

  // `start` plus the sum of both planes of row `row` of a group.
  static __m512i SumOf(const GroupSums& sums, int64_t row, int half, __m512i start) {
    const __m512i first = _mm512_load_si512(sums.of[0][half][row]);
    if constexpr (kPlanes == 1) return _mm512_add_epi32(first, start);
    const __m512i second = _mm512_load_si512(sums.of[kPlanes - 1][half][row]);
    return _mm512_add_epi32(_mm512_slli_epi32(first, 7), _mm512_add_epi32(second, start));
  }

  // Adds rows [first, rows) of a group, whose records begin at `x`, to outputs `y`.
  template <DType kDType>
  static void AddGroup(const Weights& w, const uint8_t* x, const GroupSums* sums, int64_t first,
                       int64_t rows, __m512 (*y)[kHalves]) {
    using T = BlockTraits<kDType>;
    for (int64_t row = first; row < rows; ++row) {
      const uint8_t* record = x + row * kXBytes;
      const __m512i start =
          T::kHasMinimum ? _mm512_setzero_si512() : Broadcast(record + kOffsetAt<kPlanes>);
      Sums<1> products;
      for (int half = 0; half < kHalves; ++half) {
        products[0][half] = SumOf(sums[0], row, half, start);
        if constexpr (T::kHasHalfScales) {
          const __m512i other =
              SumOf(sums[1], row, half, Broadcast(record + kOffsetAt<kPlanes> + 4));
          products[0][half] =
              _mm512_add_epi32(_mm512_mullo_epi32(products[0][half], w.half_scales[half][0]),
                               _mm512_mullo_epi32(other, w.half_scales[half][1]));
        }
      }
      AddProducts<kDType, kPlanes, 1>(w, record, products, RegistersInOrder{y + row});
    }
  }

  // Quads of both halves of a block in tile layout: those of the slice, or `decoded`.
  template <DType kDType>
  static const uint8_t* QuadsOf(const uint8_t* record, const Weights& w, uint8_t* decoded) {
    if constexpr (kDType == DType::kQ8_0) return record;
    for (int half = 0; half < kHalves; ++half) {
      for (int q = 0; q < kQuads; ++q) {
        _mm512_store_si512(decoded + (half * kQuads + q) * kLineBytes, w.values[half][q]);
      }
    }
    return decoded;
  }

  template <DType kDType>
  static void MultiplySlice(const PackedProduct& p) {
    constexpr int kPasses = BlockTraits<kDType>::kHasHalfScales ? 2 : 1;
    constexpr int64_t kPassQuads = kQuads / kPasses;
    const int64_t groups = (p.n + kTileRows - 1) / kTileRows;
    const int64_t height = (p.n + groups - 1) / groups;
    const int64_t sizes = height * (kQuads + 1) + kPassQuads;
    if (p.tile_config == nullptr || *p.tile_config != sizes) Configure(height, kPassQuads);
    if (p.tile_config != nullptr) *p.tile_config = sizes;
    __m512 sums[kMaxChunkRows][kHalves];
    for (int64_t n = 0; n < p.n; ++n) sums[n][0] = sums[n][1] = _mm512_setzero_ps();
    alignas(64) uint8_t decoded[kHalves * kQuads * kLineBytes];
    for (int64_t b = 0; b < p.k / kRecordElements; ++b) {
      const uint8_t* record = Record<kDType>(p.weights, b);
      PrefetchRecord<kDType>(record + kPrefetchBytes);
      Weights w;
      Decode<kDType>(Head<kDType>(p.weights, b), record, &w);
      const uint8_t* quads = QuadsOf<kDType>(record, w, decoded);
      const uint8_t* x = p.activations + b * p.n * kXBytes;
      GroupSums products[2][kPasses];
      for (int pass = 0; pass < kPasses; ++pass) {
        const uint8_t* from = quads + pass * kPassQuads * kLineBytes;
        Tiles::template Load<kWeightTile>(from, kLineBytes);
        Tiles::template Load<kWeightTile + 1>(from + kQuads * kLineBytes, kLineBytes);
        for (int64_t g = 0; g < groups; ++g) {
          const int64_t first = g * (p.n - height);
          MultiplyGroup(x + first * kXBytes + pass * kPassQuads * 4, &products[g][pass]);
        }
      }
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t first = g * (p.n - height);
        const int64_t done = g * (2 * height - p.n);
        AddGroup<kDType>(w, x + first * kXBytes, products[g], done, height, sums + first);
      }
    }
    if (p.tile_config == nullptr) Tiles::Release();
    for (int64_t n = 0; n < p.n; ++n) StoreRow(p, n, sums[n]);
  }

  static void Multiply(const PackedProduct& product) {
    if (product.n < kMinTileRows) return kFewRows->multiply(product);
    WithBlockFormat(product.dtype, [&]<DType kDType>() { MultiplySlice<kDType>(product); });
  }

  static void Prepare(DType dtype, const InputRows& x, uint8_t* chunk) {
    kFewRows->prepare(dtype, x, chunk);
  }

  static constexpr PackedGemm kKernels = {.max_chunk_rows = kMaxChunkRows,
                                          .slice_bytes = BlockSliceBytes,
                                          .pack = PackBlockSlice,
                                          .chunk_bytes = QuantizedBytes<kPlanes>,
                                          .prepare = Prepare,
                                          .multiply = Multiply,
                                          .release_tiles = Tiles::Release};
};

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_BLOCK_AMX_INL_H_
