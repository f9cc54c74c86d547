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
  // Their sums, 12 KB of one plane, and their rows stay in L1.
  static constexpr int kBlocksAtOnce = 3;

  // Tiles 0 to 3 hold sums, half h of pair p in tile 2 * p + h; 4 and 5 hold x of each pair, 6 and 7
  // the halves of weights.
  static constexpr int kXTile = 4;
  static constexpr int kWeightTile = 6;

  // Integer sums of a group of rows, by half of the weight rows, and those of all planes.
  struct alignas(64) HalfSums {
    int32_t of[kHalves][kTileRows][kHalfSliceRows];
  };
  struct GroupSums {
    HalfSums plane[kPlanes];
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

  // Products of a group of rows that are still in the sums of pair `p` of tiles, or null. They are
  // stored once the next products' operands are being loaded: a tile is not renamed, so what
  // follows a store in the same tile waits for it.
  struct Waiting {
    HalfSums* pair[2] = {};
  };

  template <int kPair>
  static void StorePair(Waiting* waiting) {
    HalfSums* const sums = waiting->pair[kPair];
    if (sums == nullptr) return;
    Tiles::template Store<2 * kPair>(sums->of[0], kLineBytes);
    Tiles::template Store<2 * kPair + 1>(sums->of[1], kLineBytes);
    waiting->pair[kPair] = nullptr;
  }

  // Multiplies the weights in tiles with one plane of a group of rows, whose quads begin at `x`.
  template <int kPair>
  static void MultiplyPair(const uint8_t* x, HalfSums* sums, Waiting* waiting) {
    Tiles::template Load<kXTile + kPair>(x, kXBytes);
    StorePair<kPair>(waiting);
    Tiles::template Zero<2 * kPair>();
    Tiles::template Zero<2 * kPair + 1>();
    Tiles::template MultiplyBytes<2 * kPair, kXTile + kPair, kWeightTile>();
    Tiles::template MultiplyBytes<2 * kPair + 1, kXTile + kPair, kWeightTile + 1>();
    waiting->pair[kPair] = sums;
  }

  // `start` plus the sum of both planes of row `row` of a group.
  static __m512i SumOf(const GroupSums& sums, int64_t row, int half, __m512i start) {
    const __m512i first = _mm512_load_si512(sums.plane[0].of[half][row]);
    if constexpr (kPlanes == 1) return _mm512_add_epi32(first, start);
    const __m512i second = _mm512_load_si512(sums.plane[kPlanes - 1].of[half][row]);
    return _mm512_add_epi32(_mm512_slli_epi32(first, 7), _mm512_add_epi32(second, start));
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

  // The rows of a chunk in `count` groups of `height`.
  struct Groups {
    explicit Groups(int64_t n)
        : rows(n), count((n + kTileRows - 1) / kTileRows), height((n + count - 1) / count) {}
    int64_t First(int64_t group) const { return group * (rows - height); }
    // How many of its first rows the group before has.
    int64_t Shared(int64_t group) const { return group * (2 * height - rows); }
    int64_t rows, count, height;
  };

  // Multiplies kBlocks blocks in tiles, and then adds the products of all of them to the outputs of
  // one row after the other: outputs are read and written once.
  template <DType kDType, int kBlocks>
  struct SomeBlocks {
    using T = BlockTraits<kDType>;
    static constexpr int kPasses = T::kHasHalfScales ? 2 : 1;
    static constexpr int64_t kPassQuads = kQuads / kPasses;

    Weights weights[kBlocks];
    const uint8_t* x[kBlocks];
    GroupSums products[kBlocks][2][kPasses];

    void Multiply(const PackedProduct& p, const Groups& groups, int64_t first_block) {
      alignas(64) uint8_t decoded[kBlocks][kHalves * kQuads * kLineBytes];
      Waiting waiting;
      for (int i = 0; i < kBlocks; ++i) {
        const int64_t b = first_block + i;
        const uint8_t* const record = Record<kDType>(p.weights, b);
        PrefetchRecord<kDType>(record + kPrefetchBytes);
        Decode<kDType>(Head<kDType>(p.weights, b), record, &weights[i]);
        x[i] = p.activations + b * p.n * kXBytes;
        const uint8_t* const quads = QuadsOf<kDType>(record, weights[i], decoded[i]);
        for (int pass = 0; pass < kPasses; ++pass) {
          const uint8_t* const from = quads + pass * kPassQuads * kLineBytes;
          Tiles::template Load<kWeightTile>(from, kLineBytes);
          Tiles::template Load<kWeightTile + 1>(from + kQuads * kLineBytes, kLineBytes);
          MultiplyGroups(x[i] + pass * kPassQuads * 4, groups, pass, products[i], &waiting);
        }
      }
      StorePair<0>(&waiting);
      StorePair<1>(&waiting);
    }

    // A group has a pair of tiles for each plane; two groups of one plane have a pair each.
    static void MultiplyGroups(const uint8_t* rows, const Groups& groups, int pass,
                               GroupSums (*sums)[kPasses], Waiting* waiting) {
      for (int64_t g = 0; g < groups.count; ++g) {
        const uint8_t* const from = rows + groups.First(g) * kXBytes;
        HalfSums* const planes = sums[g][pass].plane;
        if (kPlanes == 1 && g == 1) {
          MultiplyPair<1>(from, planes, waiting);
        } else {
          MultiplyPair<0>(from, planes, waiting);
        }
        if constexpr (kPlanes == 2) MultiplyPair<1>(from + 32, planes + 1, waiting);
      }
    }

    void AddTo(__m512 (*y)[kHalves], const Groups& groups) const {
      for (int64_t g = 0; g < groups.count; ++g) {
        const int64_t first = groups.First(g);
        for (int64_t row = groups.Shared(g); row < groups.height; ++row) {
          __m512 sums[1][kHalves] = {{y[first + row][0], y[first + row][1]}};
#pragma GCC unroll 4
          for (int i = 0; i < kBlocks; ++i) AddRow(i, g, row, x[i] + (first + row) * kXBytes, sums);
          y[first + row][0] = sums[0][0];
          y[first + row][1] = sums[0][1];
        }
      }
    }

    [[gnu::always_inline]] void AddRow(int i, int64_t g, int64_t row, const uint8_t* record,
                                       __m512 (*y)[kHalves]) const {
      const Weights& w = weights[i];
      const GroupSums* const of = products[i][g];
      const __m512i start =
          T::kHasMinimum ? _mm512_setzero_si512() : Broadcast(record + kOffsetAt<kPlanes>);
      Sums<1> sums;
      for (int half = 0; half < kHalves; ++half) {
        sums[0][half] = SumOf(of[0], row, half, start);
        if constexpr (T::kHasHalfScales) {
          const __m512i other =
              SumOf(of[1], row, half, Broadcast(record + kOffsetAt<kPlanes> + 4));
          sums[0][half] =
              _mm512_add_epi32(_mm512_mullo_epi32(sums[0][half], w.half_scales[half][0]),
                               _mm512_mullo_epi32(other, w.half_scales[half][1]));
        }
      }
      AddProducts<kDType, kPlanes, 1>(w, record, sums, RegistersInOrder{y});
    }
  };

  template <DType kDType>
  static void MultiplySlice(const PackedProduct& p) {
    constexpr int64_t kPassQuads = SomeBlocks<kDType, 1>::kPassQuads;
    const Groups groups(p.n);
    const int64_t sizes = groups.height * (kQuads + 1) + kPassQuads;
    if (p.tile_config == nullptr || *p.tile_config != sizes) Configure(groups.height, kPassQuads);
    if (p.tile_config != nullptr) *p.tile_config = sizes;
    __m512 sums[kMaxChunkRows][kHalves];
    for (int64_t n = 0; n < p.n; ++n) sums[n][0] = sums[n][1] = _mm512_setzero_ps();
    const int64_t blocks = p.k / kRecordElements;
    int64_t b = 0;
    for (; b + kBlocksAtOnce <= blocks; b += kBlocksAtOnce) {
      SomeBlocks<kDType, kBlocksAtOnce> some;
      some.Multiply(p, groups, b);
      some.AddTo(sums, groups);
    }
    for (; b < blocks; ++b) {
      SomeBlocks<kDType, 1> one;
      one.Multiply(p, groups, b);
      one.AddTo(sums, groups);
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
