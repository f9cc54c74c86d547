// File: cc/ops/paged_attention/attention_bytes_inl.h
// A split of int8 keys and values for all rows of a tile, over the inner loops of
// attention_int8_inl.h: the functions of an AttentionKernel.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_BYTES_INL_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_BYTES_INL_H_

#include "cc/ops/paged_attention/attention_int8_inl.h"

namespace pagemill::ops {
namespace {

// With more rows than this the quads of a split are put side by side once, for all of them.
constexpr int kFewByteRows = 6;

// Whole numbers of the largest over 32639 = 127 * 256 + 127, as two signed bytes: ByteQuery.
inline void QuantizeQuery(const AttentionShape& shape, const float* q, int8_t* target) {
  __m512i most = _mm512_setzero_si512();
  for (int i = 0; i < shape.head_dim; i += 16) {
    const __m512 v = Vec::LoadN(q + i, shape.head_dim - i);
    most = _mm512_max_epu32(most, _mm512_castps_si512(_mm512_abs_ps(v)));
  }
  const float largest = __builtin_bit_cast(float, _mm512_reduce_max_epu32(most));
  float unit = largest < 1e-30f ? 1e-30f / 32639 : largest / 32639;  // NaN where anything is
  if (largest == __builtin_inff()) unit = __builtin_nanf("");
  const __m512 factor = _mm512_set1_ps(1 / unit);
  __m512i sum_high = _mm512_setzero_si512(), sum_low = _mm512_setzero_si512();
  for (int i = 0; i < shape.padded_dim; i += 16) {
    const int left = shape.head_dim - i;
    const __m512 v = left > 0 ? Vec::LoadN(q + i, left) : Vec::Zero();
    const __m512i n = _mm512_cvtps_epi32(_mm512_mul_ps(v, factor));
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(128)), 8);
    const __m512i low = _mm512_sub_epi32(n, _mm512_slli_epi32(high, 8));
    _mm_storeu_si128((__m128i*)(target + i), _mm512_cvtepi32_epi8(high));
    _mm_storeu_si128((__m128i*)(target + shape.padded_dim + i), _mm512_cvtepi32_epi8(low));
    sum_high = _mm512_add_epi32(sum_high, high);
    sum_low = _mm512_add_epi32(sum_low, low);
  }
  const int32_t starts[2] = {-128 * _mm512_reduce_add_epi32(sum_high),
                             -128 * _mm512_reduce_add_epi32(sum_low)};
  unit *= shape.query_scale;
  __builtin_memcpy(target + 2 * shape.padded_dim, starts, 8);
  __builtin_memcpy(target + 2 * shape.padded_dim + 8, &unit, 4);
}

inline void LoadByteQueries(const AttentionShape& shape, const AttentionTile& tile,
                            const AttentionScratch& scratch) {
  AskForQueries(shape, tile);
  for (int row = 0; row < tile.rows; ++row) {
    const int32_t r = tile.first_row + row;
    const float* q = tile.q + r / shape.group * tile.q_stride +
                     static_cast<int64_t>(r % shape.group) * shape.head_dim;
    QuantizeQuery(shape, q, QueryBytes(shape, scratch, row));
  }
}

// Puts a split's keys, or values, side by side in scratch: groups [first, last) of `quads`.
inline void ReadyKeys(const AttentionShape& shape, const ByteChunk& chunk, int first, int last,
                      const AttentionScratch& scratch, ByteChunk* ready) {
  const int64_t group_bytes = int64_t{kAttentionKeyGroup} * shape.padded_dim;
  for (int g = first; g < last; ++g) {
    int8_t* to = reinterpret_cast<int8_t*>(scratch.pages) + g * group_bytes;
    ready->keys[g] = to;
    for (int d = 0; d < shape.head_dim; d += kQuad, to += 64) {
      const int8_t* key = chunk.keys[g] + int64_t{d} * shape.block_size;
      _mm512_storeu_si512(
          to, LoadKeyQuads<QuadForm::kStrided>(key, shape.block_size, shape.head_dim - d));
    }
  }
}
inline void ReadyValues(const AttentionShape& shape, const ByteChunk& chunk, int first, int last,
                        const AttentionScratch& scratch, ByteChunk* ready) {
  int8_t* const pages = reinterpret_cast<int8_t*>(scratch.pages);
  for (int g = first; g < last; ++g) {
    int8_t* to =
        pages + int64_t{kAttentionSplit} * 2 * shape.padded_dim + g * ReadyGroupBytes(shape);
    ready->values[g] = to;
    for (int key = 0; key < kAttentionKeyGroup; key += kQuad) {
      for (int dim = 0; dim < shape.head_dim; dim += kQuadUnit, to += kQuad * kQuadUnit) {
        InterleaveValues(chunk.values[g] + int64_t{key} * shape.head_dim + dim, shape.head_dim,
                         shape.head_dim - dim, reinterpret_cast<__m512i*>(to));
      }
    }
  }
}

// The weights of kRows rows from `row`, all of which see a part of the split.
template <int kRows, QuadForm kForm>
void WeighByteRows(const AttentionShape& shape, const AttentionScratch& scratch,
                   const ByteChunk& chunk, const RowKeys* keys, int row,
                   const AttentionState& state, ByteWeights* weights) {
  const int first = keys[row].range.low / kAttentionKeyGroup;
  const int last = (keys[row + kRows - 1].range.high + kAttentionKeyGroup - 1) / kAttentionKeyGroup;
  ByteQuery query[kRows];
  for (int r = 0; r < kRows; ++r) query[r] = LoadByteQuery(shape, scratch, row + r);
  ByteScoreRows<kRows, kForm>(shape, query, chunk, first, last, scratch.scores);
  for (int r = row; r < row + kRows; ++r) {
    weights[r].high = reinterpret_cast<uint8_t*>(scratch.weights + r * kAttentionSplit);
    WeighBytes(shape, keys[r], scratch.scores + (r - row) * kAttentionSplit, weights + r,
               state.max + r, state.sum + r * kSumLanes);
  }
}

template <QuadForm kForm>
void WeighAllByteRows(const AttentionShape& shape, const AttentionScratch& scratch,
                      ByteChunk& chunk, const RowKeys* keys, RowRange rows,
                      const AttentionState& state, ByteWeights* weights) {
  ForRowBlocks(rows.first, rows.last, [&]<int kRows>(int row) {
    if (kForm != QuadForm::kReady && row != rows.first) AskForNoKeys(&chunk);
    WeighByteRows<kRows, kForm>(shape, scratch, chunk, keys, row, state, weights);
  });
}

template <int kRows, QuadForm kForm>
void AddRowValues(const AttentionShape& shape, const ByteChunk& chunk, const RowKeys* keys, int row,
                  const ByteWeights* weights, const AttentionState& state) {
  if constexpr (kRows > 3) {
    AddRowValues<kRows / 2, kForm>(shape, chunk, keys, row, weights, state);
    AddRowValues<kRows / 2, kForm>(shape, chunk, keys, row + kRows / 2, weights, state);
  } else {
    const int begin = keys[row].range.low / kQuad;
    const int end = (keys[row + kRows - 1].range.high + kQuad - 1) / kQuad;
    for (int dim = 0; dim < shape.head_dim; dim += kQuadUnit) {
      AddByteValues<kRows, kForm>(shape, chunk, begin, end, dim, weights + row,
                                  state.acc + int64_t{row} * shape.padded_dim);
    }
  }
}

template <QuadForm kForm>
void AddAllByteValues(const AttentionShape& shape, ByteChunk& chunk, const RowKeys* keys,
                      RowRange rows, const ByteWeights* weights, const AttentionState& state) {
  ForRowBlocks(rows.first, rows.last, [&]<int kRows>(int row) {
    if (kForm != QuadForm::kReady && row != rows.first) AskForNoValues(&chunk);
    AddRowValues<kRows, kForm>(shape, chunk, keys, row, weights, state);
  });
}

// A few rows, from the cache itself.
inline void AttendFewByteRows(const AttentionShape& shape, const AttentionScratch& scratch,
                              ByteChunk& chunk, const RowKeys* keys, RowRange rows,
                              const AttentionState& state, ByteWeights* weights) {
  if (shape.block_size == kAttentionKeyGroup && shape.head_dim % kQuad == 0) {
    WeighAllByteRows<QuadForm::kAdjacent>(shape, scratch, chunk, keys, rows, state, weights);
  } else {
    WeighAllByteRows<QuadForm::kStrided>(shape, scratch, chunk, keys, rows, state, weights);
  }
  AddAllByteValues<QuadForm::kStrided>(shape, chunk, keys, rows, weights, state);
}

// All rows' weights first, then all rows' values, so that the first-level cache holds the split's
// keys, then its values.
inline void AttendBytes(const AttentionShape& shape, const AttentionTile& tile,
                        const AttentionScratch& scratch, int32_t begin,
                        const AttentionState& state) {
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
  ByteChunk ready = {};
  ReadyKeys(shape, chunk, first, last, scratch, &ready);
  WeighAllByteRows<QuadForm::kReady>(shape, scratch, ready, keys, rows, state, weights);
  ReadyValues(shape, chunk, first, last, scratch, &ready);
  AddAllByteValues<QuadForm::kReady>(shape, ready, keys, rows, weights, state);
}

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_BYTES_INL_H_
