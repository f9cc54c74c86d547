// File: cc/ops/paged_attention/attention_amx_int8_inl.h
// Scores and weighted values of many rows over an int8 cache in tiles of AMX: the same integers as
// with VNNI's quads (attention_int8_inl.h), so the same bits, whatever is multiplied where. Written
// once over `Tiles` (cc/ops/tiles/tile_band.h). Include it after vec_avx512.h, in a file compiled
// for AMX.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_AMX_INT8_INL_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_AMX_INT8_INL_H_

#include "cc/ops/paged_attention/attention_bytes_inl.h"
#include "cc/ops/tiles/tile_band.h"

namespace pagemill::ops {
namespace {

constexpr int kByteTileRows = 16;

// What tiles are configured for. Configuring clears all of them, so it is done as seldom as can be.
struct TileSizes {
  int rows = 0;
  int quads = 0;
  // Whether they were others so far.
  bool Become(int new_rows, int new_quads = 16) {
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
  // Sums of left, high and low, in 0 and 1, of right in 2 and 3; a in 4 and 5, b in 6 and 7.
  static void Configure(int rows, int quads) {
    device::TileConfig config;
    for (int tile = 0; tile < 8; ++tile) {
      config.rows[tile] = static_cast<uint8_t>(tile < 6 ? rows : quads);
      config.row_bytes[tile] = static_cast<uint16_t>(tile == 4 || tile == 5 ? quads * kQuad : 64);
    }
    Tiles::Configure(config);
  }

  // kSignedRows: a is signed and b is not; else the other way round.
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

// Quads of dimensions in a tile of keys: 16, for which tiles are configured as they are for values,
// or else 8, which is 32 dimensions, of which padded_dim is a multiple.
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

// Weights are 0 for keys that a row does not see, so whatever bytes lie there add nothing.
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

template <class Tiles>
void AttendByteTiles(const AttentionShape& shape, const AttentionTile& tile,
                     const AttentionScratch& scratch, int32_t begin, const AttentionState& state) {
  RowKeys keys[kAttentionTileRows];
  const auto [rows, first, last] = KeysOfSplit(shape, tile, begin, state, keys);
  if (last == 0) return;
  auto chunk = LocateChunk<int8_t, kSplitGroups>(shape, tile, begin, first, last);
  const GroupScales scales{.keys = chunk.key_scales, .values = chunk.value_scales};
  for (int row = rows.first; row < rows.last; ++row) keys[row].scales = &scales;
  ByteWeights weights[kAttentionTileRows];
  if (rows.last - rows.first <= kFewByteRows) {
    LookAhead(shape, scratch, first, last, &chunk);
    return AttendFewByteRows(shape, scratch, chunk, keys, rows, state, weights);
  }
  AskForValues(shape, chunk, first, last);
  TileSizes sizes;
  const auto each_band = [&, rows = rows](int quads, const auto& step) {
    for (int row = rows.first; row < rows.last; row += kByteTileRows) {
      const int count = rows.last - row < kByteTileRows ? rows.last - row : kByteTileRows;
      if (sizes.Become(count, quads)) ByteProducts<Tiles>::Configure(count, quads);
      step(row, count);
    }
  };
  ByteChunk ready = {};
  ReadyKeys(shape, chunk, first, last, scratch, &ready);
  each_band(KeyQuads(shape), [&](int row, int count) {
    WeighByteBand<Tiles>(shape, scratch, keys, row, count, first, last, state, weights);
  });
  ReadyValues(shape, chunk, first, last, scratch, &ready);
  each_band(kValueQuads, [&](int row, int count) {
    AddByteBandValues<Tiles>(shape, scratch, row, count, first, last, weights, state);
  });
  Tiles::Release();
}

template <class Tiles>
constexpr AttentionKernel kByteTileKernel = {.load_queries = LoadByteQueries,
                                             .attend = AttendByteTiles<Tiles>,
                                             .merge = Merge,
                                             .finish = Finish,
                                             .asks = true};

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_AMX_INT8_INL_H_
