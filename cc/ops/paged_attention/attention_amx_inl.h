// File: cc/ops/paged_attention/attention_amx_inl.h
// Scores and weighted values of many rows in AMX tiles, generic in the tile registers
// (cc/ops/tiles/tile_band.h). Include it after vec_avx512.h, in a file compiled for AMX.
//
// Over int8 and int4 rows the integers are those of the VNNI quads (attention_int8_inl.h), so
// tiles and vectors give the same bits. Over bf16 and f8_e4m3 caches, tiles read the pairs of bf16
// that attention_dots_inl.h writes to scratch; the softmax, and small numbers of rows, are computed
// with vectors, in the order of tiles.
//
// A tile multiplies every weight with every value, so values that a row does not see must be
// finite: keys that no row sees are zeros in scratch. If rows see different keys and some values
// are infinite or NaN, values are computed with vectors, which read only the visible keys of each
// row.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_AMX_INL_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_AMX_INL_H_

#include <cstring>

#include "cc/ops/paged_attention/attention_dots_inl.h"
#include "cc/ops/paged_attention/attention_int8_inl.h"
#include "cc/ops/tiles/tile_band.h"

namespace pagemill::ops {
namespace {

constexpr int kByteTileRows = 16;

// The current tile configuration. Configuring clears all tiles, so it is done as rarely as
// possible.
struct TileSizes {
  int rows = 0;
  int quads = 0;
  // Sets the sizes; returns whether they changed.
  bool Update(int new_rows, int new_quads = 16) {
    if (new_rows == rows && new_quads == quads) return false;
    rows = new_rows;
    quads = new_quads;
    return true;
  }
};

// Two planes of a (high and low bytes) times two tiles of b: left and right.
struct ByteOperands {
  const void* high = nullptr;  // of rows `a_stride` bytes apart
  const void* low = nullptr;
  int64_t a_stride = 0;
  const int8_t* left = nullptr;  // of quads `b_stride` bytes apart
  const int8_t* right = nullptr;
  int64_t b_stride = 0;
  int blocks = 0;  // of quads: as many as a tile of b has rows
};

// The integers of 16 columns for rows of a band.
struct ByteSums {
  alignas(64) int32_t high[kByteTileRows][16];
  alignas(64) int32_t low[kByteTileRows][16];
  __m512 Row(int row, int32_t start_high, int32_t start_low) const {
    return Join(_mm512_add_epi32(_mm512_load_si512(high[row]), _mm512_set1_epi32(start_high)),
                _mm512_add_epi32(_mm512_load_si512(low[row]), _mm512_set1_epi32(start_low)));
  }
};

template <class Tiles>
struct ByteProducts {
  // Tiles 0 and 1 hold the high and low sums of left, 2 and 3 those of right; 4 and 5 hold a, 6 and
  // 7 hold b.
  static void Configure(int rows, int quads) {
    device::TileConfig config;
    for (int tile = 0; tile < 8; ++tile) {
      config.rows[tile] = static_cast<uint8_t>(tile < 6 ? rows : quads);
      config.row_bytes[tile] = static_cast<uint16_t>(tile == 4 || tile == 5 ? quads * kQuad : 64);
    }
    Tiles::Configure(config);
  }

  // kSignedRows: a is signed and b is unsigned; else vice versa.
  template <bool kSignedRows, int kSums, int kA, int kB>
  static void MultiplyTiles() {
    if constexpr (kSignedRows) {
      Tiles::template MultiplyBytes<kSums, kA, kB>();
    } else {
      Tiles::template MultiplyUnsigned<kSums, kA, kB>();
    }
  }

  template <bool kSignedRows>
  static void Multiply(const ByteOperands& o, int quads, ByteSums* left, ByteSums* right) {
    Tiles::template Zero<0>();
    Tiles::template Zero<1>();
    Tiles::template Zero<2>();
    Tiles::template Zero<3>();
    for (int block = 0; block < o.blocks; ++block) {
      const int64_t a = int64_t{block} * quads * kQuad, b = block * quads * o.b_stride;
      Tiles::template Load<4>(static_cast<const int8_t*>(o.high) + a, o.a_stride);
      Tiles::template Load<5>(static_cast<const int8_t*>(o.low) + a, o.a_stride);
      Tiles::template Load<6>(o.left + b, o.b_stride);
      Tiles::template Load<7>(o.right + b, o.b_stride);
      MultiplyTiles<kSignedRows, 0, 4, 6>();
      MultiplyTiles<kSignedRows, 1, 5, 6>();
      MultiplyTiles<kSignedRows, 2, 4, 7>();
      MultiplyTiles<kSignedRows, 3, 5, 7>();
    }
    Tiles::template Store<0>(left->high, 64);
    Tiles::template Store<1>(left->low, 64);
    Tiles::template Store<2>(right->high, 64);
    Tiles::template Store<3>(right->low, 64);
  }
};

// Quads of dimensions in a tile of keys: 16, the configuration of values, or 8, which is 32
// dimensions, a divisor of padded_dim.
inline int KeyQuads(const AttentionShape& shape) { return shape.padded_dim % 64 == 0 ? 16 : 8; }

// The weights of `count` rows from `row`; quads of keys are in scratch for groups [first, last).
template <class Tiles>
void WeighByteBand(const AttentionShape& shape, const AttentionScratch& scratch,
                   const RowKeys* keys, int row, int count, int first, int last,
                   const AttentionState& state, ByteWeights* weights) {
  const int quads = KeyQuads(shape);
  const int64_t group_bytes = int64_t{kAttentionKeyGroup} * shape.padded_dim;
  const int8_t* const pages = reinterpret_cast<const int8_t*>(scratch.pages);
  ByteQuery query[kByteTileRows];
  for (int r = 0; r < count; ++r) query[r] = LoadByteQuery(shape, scratch, row + r);
  for (int g = first; g < last; g += 2) {
    const int other = g + 1 < last ? g + 1 : g;
    ByteSums sums[2];
    ByteProducts<Tiles>::template Multiply<true>(
        {.high = query[0].high,
         .low = query[0].low,
         .a_stride = shape.padded_dim * int64_t{sizeof(float)},
         .left = pages + g * group_bytes,
         .right = pages + other * group_bytes,
         .b_stride = 64,
         .blocks = shape.padded_dim / (quads * kQuad)},
        quads, &sums[0], &sums[1]);
    for (int r = 0; r < count; ++r) {
      for (int i = 0; i < 2 && g + i < last; ++i) {
        const __m512 dots = sums[i].Row(r, query[r].start_high, query[r].start_low);
        _mm512_storeu_ps(scratch.scores + r * kAttentionSplit + (g + i) * kAttentionKeyGroup,
                         _mm512_mul_ps(dots, _mm512_set1_ps(query[r].unit)));
      }
    }
  }
  for (int r = row; r < row + count; ++r) {
    weights[r].high = reinterpret_cast<uint8_t*>(scratch.weights + r * kAttentionSplit);
    WeighBytes(shape, keys[r], scratch.scores + (r - row) * kAttentionSplit, weights + r,
               state.max + r, state.sum + r * kSumLanes);
  }
}

constexpr int kValueQuads = 16;  // of keys in a tile of values

// Weights are 0 for keys that a row does not see, so their bytes have no effect.
template <class Tiles>
void AddByteBandValues(const AttentionShape& shape, const AttentionScratch& scratch, int row,
                       int count, int first, int last, const ByteWeights* weights,
                       const AttentionState& state) {
  constexpr int kGroups = kValueQuads * kQuad / kAttentionKeyGroup;
  const int first_block = first / kGroups, last_block = (last + kGroups - 1) / kGroups;
  const int64_t group_bytes = ReadyGroupBytes(shape);
  const int8_t* const values = reinterpret_cast<const int8_t*>(scratch.pages) +
                               int64_t{kAttentionSplit} * 2 * shape.padded_dim +
                               first_block * kGroups * group_bytes;
  const uint8_t* const a = weights[row].high + first_block * kValueQuads * kQuad;
  for (int dim = 0; dim < shape.head_dim; dim += kQuadUnit) {
    ByteSums sums[4];
    for (int i = 0; i < 4; i += 2) {
      const int8_t* const left = values + dim * kQuad + i * 64;
      ByteProducts<Tiles>::template Multiply<false>(
          {.high = a,
           .low = a + kAttentionSplit,
           .a_stride = 2 * kAttentionSplit,
           .left = left,
           .right = left + 64,
           .b_stride = group_bytes / (kAttentionKeyGroup / kQuad),
           .blocks = last_block - first_block},
          kValueQuads, &sums[i], &sums[i + 1]);
    }
    for (int r = 0; r < count; ++r) {
      __m512 row_sums[4];
      for (int i = 0; i < 4; ++i) {
        row_sums[i] = _mm512_mul_ps(sums[i].Row(r, 0, 0), _mm512_set1_ps(weights[row + r].unit));
      }
      StoreSums(shape, row_sums, dim, state.acc + int64_t{row + r} * shape.padded_dim);
    }
  }
}

template <class Tiles, typename Key, typename Value>
void AttendByteTiles(const AttentionShape& shape, const AttentionTile& tile,
                     const AttentionScratch& scratch, int32_t begin, const AttentionState& state) {
  RowKeys keys[kAttentionTileRows];
  const auto [rows, first, last] = KeysOfSplit(shape, tile, begin, state, keys);
  if (last == 0) return;
  auto chunk = LocateChunk<Key, Value, kSplitGroups>(shape, tile, begin, first, last);
  const GroupScales scales = ScalesOf(chunk);
  for (int row = rows.first; row < rows.last; ++row) keys[row].scales = &scales;
  ByteWeights weights[kAttentionTileRows];
  if (rows.last - rows.first <= kFewByteRows) {
    SetPrefetchTargets(shape, scratch, first, last, &chunk);
    return AttendFewByteRows(shape, scratch, chunk, keys, rows, state, weights);
  }
  PrefetchValues(shape, chunk.values, first, last);
  TileSizes sizes;
  const auto each_band = [&, rows = rows](int quads, const auto& step) {
    for (int row = rows.first; row < rows.last; row += kByteTileRows) {
      const int count = rows.last - row < kByteTileRows ? rows.last - row : kByteTileRows;
      if (sizes.Update(count, quads)) ByteProducts<Tiles>::Configure(count, quads);
      step(row, count);
    }
  };
  ReadyKeys(shape, chunk.keys, first, last, scratch);
  each_band(KeyQuads(shape), [&](int row, int count) {
    WeighByteBand<Tiles>(shape, scratch, keys, row, count, first, last, state, weights);
  });
  ReadyValues(shape, chunk.values, first, last, scratch);
  each_band(kValueQuads, [&](int row, int count) {
    AddByteBandValues<Tiles>(shape, scratch, row, count, first, last, weights, state);
  });
  Tiles::Release();
}

template <class Tiles, typename Key, typename Value = Key>
constexpr AttentionKernel kByteTileKernel = {.load_queries = LoadByteQueries<Key>,
                                             .attend = AttendByteTiles<Tiles, Key, Value>,
                                             .merge = Merge,
                                             .finish = Finish<Value>,
                                             .prefetches = true};

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

// The left operand: rows of bf16.
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

// More rows than this are multiplied in tiles, which take the same time for one row as for 16.
// Estimated from the times of 3 and 4 rows, at which both take about the same.
constexpr int kFewTileRows = 6;

// Groups of whole tiles of keys: [first, last).
struct TileGroups {
  int first = 0;
  int last = 0;
};

// Pairs the keys of groups [first, last), with zeros up to padded_dim.
template <typename Element>
void PairTileKeys(const AttentionShape& shape, const ChunkSide<Element, kSplitGroups>& keys,
                  int first, int last, const AttentionScratch& scratch) {
  const int64_t written = (shape.head_dim + 1) / 2 * 2;
  for (int g = first; g < last; ++g) {
    PairKeys(shape, keys.at[g], g, scratch);
    std::memset(PairPage(shape, g, scratch) + written * kAttentionKeyGroup, 0,
                (shape.padded_dim - written) * kAttentionKeyGroup * sizeof(uint16_t));
  }
}

// Pairs the values of groups [first, last), which are whole tiles; those of keys outside `seen`
// become zeros.
template <typename Element>
void PairTileValues(const AttentionShape& shape, const ChunkSide<Element, kSplitGroups>& values,
                    int first, int last, KeyRange seen, const AttentionScratch& scratch) {
  for (int g = first; g < last; ++g) PairValues(shape, values.at[g], g, scratch);
  uint16_t* const pages = PairPage(shape, kSplitGroups, scratch);
  const auto zero = [&](int key) {
    uint16_t* pairs = pages + int64_t{key / 2} * 2 * shape.padded_dim + key % 2;
    for (int i = 0; i < shape.padded_dim; ++i) pairs[2 * i] = 0;
  };
  for (int key = seen.low / kTileKeys * kTileKeys; key < seen.low; ++key) zero(key);
  for (int key = seen.high; key % kTileKeys != 0; ++key) zero(key);
}

// True if any value of the groups is infinite or NaN.
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

// While it exists, vectors of this thread treat subnormal numbers as 0, as tiles do.
class FlushSubnormals {
 public:
  FlushSubnormals() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
  }
  ~FlushSubnormals() { _mm_setcsr(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;

 private:
  const unsigned before_;
};

template <class Tiles, typename Element>
void AttendTiles(const AttentionShape& shape, const AttentionTile& tile,
                 const AttentionScratch& scratch, int32_t begin, const AttentionState& state) {
  const FlushSubnormals flush;
  RowKeys keys[kAttentionTileRows];
  const auto [rows, first, last] = KeysOfSplit(shape, tile, begin, state, keys);
  if (last == 0) return;
  auto chunk = LocateChunk<Element, Element, kSplitGroups>(shape, tile, begin, first, last);
  if (rows.last - rows.first <= kFewTileRows) {
    SetPrefetchTargets(shape, scratch, first, last, &chunk);
    return AttendFewRows<Element, DotOrder::kTiles>(shape, scratch, chunk, keys, rows, state);
  }
  PrefetchValues(shape, chunk.values, first, last);
  TileSizes sizes;
  const auto each_band = [&sizes, rows = rows](const auto& step) {
    for (int row = rows.first; row < rows.last; row += kBandRows) {
      const int count = rows.last - row < kBandRows ? rows.last - row : kBandRows;
      if (sizes.Update(count)) TileProducts<Tiles>::Band::Configure(count);
      step(row, count);
    }
  };
  const KeyRange seen{.low = keys[rows.first].range.low, .high = keys[rows.last - 1].range.high};
  const TileGroups groups{.first = first / 2 * 2, .last = (last + 1) / 2 * 2};
  PairTileKeys(shape, chunk.keys, first, last, scratch);
  each_band([&](int row, int count) {
    WeighBand<Tiles>(shape, scratch, keys, row, count, groups, state);
  });
  PairTileValues(shape, chunk.values, first, last, seen, scratch);
  const bool alike = keys[rows.first].range == keys[rows.last - 1].range;
  if (alike || !HasNonFiniteValues(shape, groups, scratch)) {
    each_band([&](int row, int count) {
      AddBandValues<Tiles>(shape, scratch, row, count, groups, state);
    });
  } else {
    DotSide pairs = {};
    for (int g = first; g < last; ++g) pairs.at[g] = PairPage(shape, kSplitGroups + g, scratch);
    AddAllValues<PageForm::kPaired, DotOrder::kTiles>(shape, scratch, pairs, keys, rows, state);
  }
  Tiles::Release();
}

template <class Tiles, typename Element>
constexpr AttentionKernel kTileKernel = {.load_queries = LoadRoundedQueries,
                                         .attend = AttendTiles<Tiles, Element>,
                                         .merge = Merge,
                                         .finish = FinishDots,
                                         .prefetches = true};

template <class Tiles>
constexpr AttentionKernels kTileKernels = {.f32 = {},
                                           .bf16 = kTileKernel<Tiles, uint16_t>,
                                           .f8 = kTileKernel<Tiles, uint8_t>,
                                           .int8 = kByteTileKernel<Tiles, int8_t>,
                                           .int4 = kByteTileKernel<Tiles, Int4Pair>,
                                           .k8v4 = kByteTileKernel<Tiles, int8_t, Int4Pair>};

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_AMX_INL_H_
