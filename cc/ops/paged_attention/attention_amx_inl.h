// File: cc/ops/paged_attention/attention_amx_inl.h
// Scores and weighted values of many rows in tiles of AMX, over the pairs of bf16 that
// attention_pairs_inl.h leaves in scratch; the softmax, and few rows, are those of vectors, in the
// order of tiles. Written once over `Tiles` (cc/ops/tiles/tile_band.h). Include it after
// vec_avx512.h, in a file compiled for AMX.
//
// A tile multiplies every weight with every value, so what a row does not see must be finite: keys
// that no row sees are zeros in scratch, and where rows see different keys of which some are
// infinite or NaN, the values are left to vectors, which read for each row what it sees.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_AMX_INL_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_AMX_INL_H_

#include <cstring>

#include "cc/ops/paged_attention/attention_amx_int8_inl.h"
#include "cc/ops/paged_attention/attention_dots_inl.h"
#include "cc/ops/tiles/tile_band.h"

namespace pagemill::ops {
namespace {

constexpr int kTileRows = 16;
constexpr int kBandRows = 2 * kTileRows;
constexpr int kTileKeys = 32;  // that one tile of weights holds

// The right operand of a product: two tiles of 16 columns side by side for each 32 elements.
struct TileColumns {
  const uint16_t* left = nullptr;
  const uint16_t* right = nullptr;
  int64_t stride_bytes = 0;  // from one pair of elements to the next
  int blocks = 0;            // of 32 elements, `16 stride_bytes` apart
};

// The left one: rows of bf16.
struct TileBand {
  const uint16_t* rows = nullptr;
  int64_t stride_bytes = 0;
  int count = 0;  // at most kBandRows
};

template <class Tiles>
struct TileProducts {
  using Band = BandProducts<Tiles, TileProduct::kBf16>;

  template <bool kTwo>
  static void Multiply(const TileBand& band, const TileColumns& columns, float* to,
                       int64_t to_stride) {
    Band::template Clear<kTwo>();
    const auto bytes = [](const uint16_t* elements) {
      return reinterpret_cast<const uint8_t*>(elements);
    };
    for (int block = 0; block < columns.blocks; ++block) {
      const int64_t offset = block * kPairsPerBlock * columns.stride_bytes;
      Band::template Add<kTwo>(bytes(band.rows) + block * Band::kRowBytes, band.stride_bytes,
                               bytes(columns.left) + offset, bytes(columns.right) + offset,
                               columns.stride_bytes);
    }
    const int64_t to_bytes = to_stride * static_cast<int64_t>(sizeof(float));
    Tiles::template Store<0>(to, to_bytes);
    Tiles::template Store<1>(to + kTileRows, to_bytes);
    if constexpr (kTwo) {
      Tiles::template Store<2>(to + kTileRows * to_stride, to_bytes);
      Tiles::template Store<3>(to + kTileRows * to_stride + kTileRows, to_bytes);
    }
  }

  // to[row, 0 .. 32) = band columns.
  static void Multiply(const TileBand& band, const TileColumns& columns, float* to,
                       int64_t to_stride) {
    band.count > kTileRows ? Multiply<true>(band, columns, to, to_stride)
                           : Multiply<false>(band, columns, to, to_stride);
  }
};

// Groups of whole tiles of keys: [first, last).
struct TileGroups {
  int first = 0;
  int last = 0;
};

// Pairs the keys of groups [first, last), with zeros up to padded_dim.
template <typename Element>
void PairTileKeys(const AttentionShape& shape, const Chunk<Element, kSplitGroups>& chunk, int first,
                  int last, const AttentionScratch& scratch) {
  const int64_t written = (shape.head_dim + 1) / 2 * 2;
  for (int g = first; g < last; ++g) {
    PairKeys(shape, chunk.keys[g], g, scratch);
    std::memset(PairPage(shape, g, scratch) + written * kAttentionKeyGroup, 0,
                (shape.padded_dim - written) * kAttentionKeyGroup * sizeof(uint16_t));
  }
}

// Pairs the values of groups [first, last) and makes those of keys outside `seen` zeros, all of
// whole tiles.
template <typename Element>
void PairTileValues(const AttentionShape& shape, const Chunk<Element, kSplitGroups>& chunk,
                    int first, int last, KeyRange seen, const AttentionScratch& scratch) {
  for (int g = first; g < last; ++g) PairValues(shape, chunk.values[g], g, scratch);
  uint16_t* const pages = PairPage(shape, kSplitGroups, scratch);
  const auto zero = [&](int key) {
    uint16_t* pairs = pages + int64_t{key / 2} * 2 * shape.padded_dim + key % 2;
    for (int i = 0; i < shape.padded_dim; ++i) pairs[2 * i] = 0;
  };
  for (int key = seen.low / kTileKeys * kTileKeys; key < seen.low; ++key) zero(key);
  for (int key = seen.high; key % kTileKeys != 0; ++key) zero(key);
}

// Is anything in the groups' values infinite or NaN?
inline bool HasNonFiniteValues(const AttentionShape& shape, TileGroups groups,
                               const AttentionScratch& scratch) {
  const uint16_t* p = PairPage(shape, kSplitGroups + groups.first, scratch);
  const uint16_t* const end = PairPage(shape, kSplitGroups + groups.last, scratch);
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  __mmask32 found = 0;
  for (; p < end; p += 32) {
    const __m512i bits = _mm512_and_si512(_mm512_loadu_si512(p), exponent);
    found |= _mm512_cmpeq_epi16_mask(bits, exponent);
  }
  return found != 0;
}

// The weights of a band's rows from `row`.
template <class Tiles>
void WeighBand(const AttentionShape& shape, const AttentionScratch& scratch, const RowKeys* keys,
               int row, int count, TileGroups groups, const AttentionState& state) {
  TileBand band{.stride_bytes = shape.padded_dim * int64_t{sizeof(uint16_t)}, .count = count};
  band.rows = reinterpret_cast<const uint16_t*>(scratch.q) + int64_t{row} * shape.padded_dim;
  for (int g = groups.first; g < groups.last; g += 2) {
    TileProducts<Tiles>::Multiply(band,
                                  {.left = PairPage(shape, g, scratch),
                                   .right = PairPage(shape, g + 1, scratch),
                                   .stride_bytes = 64,
                                   .blocks = shape.padded_dim / kDotUnit},
                                  scratch.scores + g * kAttentionKeyGroup, kDotChunk);
  }
  for (int r = row; r < row + count; ++r) {
    uint16_t* const weights = scratch.weights + r * kDotChunk;
    std::memset(weights, 0, kDotChunk * sizeof(uint16_t));  // of keys that the row does not see
    DotSoftmaxRow(shape, keys[r], scratch.scores + (r - row) * kDotChunk, weights, state.max + r,
                  state.sum + r * kSumLanes);
  }
}

template <class Tiles>
void AddBandValues(const AttentionShape& shape, const AttentionScratch& scratch, int row, int count,
                   TileGroups groups, const AttentionState& state) {
  const TileBand band{.rows = scratch.weights + row * kDotChunk + groups.first * kAttentionKeyGroup,
                      .stride_bytes = kDotChunk * int64_t{sizeof(uint16_t)},
                      .count = count};
  const uint16_t* const values = PairPage(shape, kSplitGroups + groups.first, scratch);
  for (int dim = 0; dim < shape.padded_dim; dim += kDotUnit) {
    TileProducts<Tiles>::Multiply(band,
                                  {.left = values + 2 * dim,
                                   .right = values + 2 * dim + kDotUnit,
                                   .stride_bytes = 2 * shape.padded_dim * int64_t{sizeof(uint16_t)},
                                   .blocks = (groups.last - groups.first) / 2},
                                  state.acc + int64_t{row} * shape.padded_dim + dim,
                                  shape.padded_dim);
  }
}

template <class Tiles, typename Element>
void AttendTiles(const AttentionShape& shape, const AttentionTile& tile,
                 const AttentionScratch& scratch, int32_t begin, const AttentionState& state) {
  RowKeys keys[kAttentionTileRows];
  const auto [rows, first, last] = KeysOfSplit(shape, tile, begin, state, keys);
  if (last == 0) return;
  auto chunk = LocateChunk<Element, kSplitGroups>(shape, tile, begin, first, last);
  if (rows.last - rows.first <= kFewRows<Element>) {
    LookAhead(shape, scratch, first, last, &chunk);
    return AttendFewRows<Element, DotOrder::kTiles>(shape, scratch, chunk, keys, rows, state);
  }
  AskForValues(shape, chunk, first, last);
  TileSizes sizes;
  const auto each_band = [&sizes, rows = rows](const auto& step) {
    for (int row = rows.first; row < rows.last; row += kBandRows) {
      const int count = rows.last - row < kBandRows ? rows.last - row : kBandRows;
      if (sizes.Become(count)) TileProducts<Tiles>::Band::Configure(count);
      step(row, count);
    }
  };
  const KeyRange seen{.low = keys[rows.first].range.low, .high = keys[rows.last - 1].range.high};
  const TileGroups groups{.first = first / 2 * 2, .last = (last + 1) / 2 * 2};
  PairTileKeys(shape, chunk, first, last, scratch);
  each_band([&](int row, int count) {
    WeighBand<Tiles>(shape, scratch, keys, row, count, groups, state);
  });
  PairTileValues(shape, chunk, first, last, seen, scratch);
  const bool alike = keys[rows.first].range == keys[rows.last - 1].range;
  if (alike || !HasNonFiniteValues(shape, groups, scratch)) {
    each_band([&](int row, int count) {
      AddBandValues<Tiles>(shape, scratch, row, count, groups, state);
    });
  } else {
    DotChunk pairs = {};
    for (int g = first; g < last; ++g) pairs.values[g] = PairPage(shape, kSplitGroups + g, scratch);
    AddAllValues<PageForm::kPaired, DotOrder::kTiles>(shape, scratch, pairs, keys, rows, state);
  }
  Tiles::Release();
}

template <class Tiles, typename Element>
constexpr AttentionKernel kTileKernel = {.load_queries = LoadRoundedQueries,
                                         .attend = AttendTiles<Tiles, Element>,
                                         .merge = Merge,
                                         .finish = FinishDots,
                                         .asks = true};

template <class Tiles>
constexpr AttentionKernels kTileKernels = {.f32 = {},
                                           .bf16 = kTileKernel<Tiles, uint16_t>,
                                           .f8 = kTileKernel<Tiles, uint8_t>,
                                           .int8 = kByteTileKernel<Tiles>};

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_AMX_INL_H_
