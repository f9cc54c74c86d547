// File: cc/ops/paged_attention/attention_int8_inl.h
// A split of int8 or int4 keys and values, each of their own type, for all rows of a tile: the
// functions of an AttentionKernel, in three steps with AVX512-VNNI dot products of quads: scores
// sum quads of dimensions, values quads of keys. Queries are 16-bit integers with a unit per row,
// weights 16-bit integers with a unit per row and split; both are two bytes, high and low, which
// are multiplied separately. Sums are exact, in 32 bits, so their order does not matter: register
// blocks may have any shape. Pairs of int4 are widened to int8 as they are loaded. Include it after
// vec_avx512.h, in a file compiled with the avx512_vnni flags.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_INT8_INL_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_INT8_INL_H_

#include "cc/ops/paged_attention/attention_split_inl.h"

namespace pagemill::ops {
namespace {

constexpr int kQuad = 4;       // dimensions, or keys, of one dot product
constexpr int kQuadUnit = 64;  // dimensions whose values are loaded at once

// Element is int8_t or Int4Pair.
template <typename Element>
using SplitSide = ChunkSide<Element, kSplitGroups>;
// Quads of dimensions of 16 keys in 64 bytes of the cache.
template <typename Element>
constexpr int kQuadsAtOnce = kIsInt4<Element> ? 2 : 1;
// Keys are multiplied as unsigned bytes, key + kKeyOffset.
template <typename Element>
constexpr int kKeyOffset = kIsInt4<Element> ? 15 : 128;

// A row of queries: q = (256 high + low) unit. Keys are multiplied with an offset, which the starts
// correct.
struct ByteQuery {
  const int8_t* high = nullptr;  // [padded_dim]
  const int8_t* low = nullptr;
  int32_t start_high = 0;  // -kKeyOffset times the sum of all high, ...
  int32_t start_low = 0;   // ... of all low
  float unit = 0;
};

// Address of row `row` in scratch.q: its bytes, then start_high, start_low and unit.
inline int8_t* QueryBytes(const AttentionShape& shape, const AttentionScratch& scratch, int row) {
  return reinterpret_cast<int8_t*>(scratch.q + int64_t{row} * shape.padded_dim);
}

inline ByteQuery LoadByteQuery(const AttentionShape& shape, const AttentionScratch& scratch,
                               int row) {
  const int8_t* bytes = QueryBytes(shape, scratch, row);
  const int8_t* tail = bytes + 2 * shape.padded_dim;
  ByteQuery query{.high = bytes, .low = bytes + shape.padded_dim};
  __builtin_memcpy(&query.start_high, tail, 4);
  __builtin_memcpy(&query.start_low, tail + 4, 4);
  __builtin_memcpy(&query.unit, tail + 8, 4);
  return query;
}

// Adds products of quads, unsigned times signed bytes. With the intrinsic, GCC 12 copies and spills
// the accumulators.
inline void AddQuads(__m512i& sum, __m512i a, __m512i b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}

// Four bytes in each lane.
inline __m512i Quad(const void* p) {
  int32_t bits;
  __builtin_memcpy(&bits, p, sizeof(bits));
  return _mm512_set1_epi32(bits);
}

// Layout of keys and values.
enum class QuadForm {
  kAdjacent,  // in the cache, blocks of 16 keys, a head_dim of whole quads
  kStrided,   // in the cache
  kReady,     // in scratch, as LoadKeyQuads and InterleaveValues give them
};

// key + 128 of four dimensions, of which `dims` exist (others are 128), for 16 keys: a quad in each
// lane.
template <QuadForm kForm, int kQuadOf = 0>
inline __m512i LoadKeyQuads(const int8_t* key, int block_size, int dims) {
  if (kForm == QuadForm::kReady) return _mm512_loadu_si512(key);
  __m512i rows;
  if (kForm == QuadForm::kAdjacent) {
    rows = _mm512_loadu_si512(key);
  } else {
    const auto row = [&](int d) {
      return d < dims ? _mm_loadu_si128((const __m128i*)(key + int64_t{d} * block_size))
                      : _mm_setzero_si128();
    };
    rows = _mm512_castsi128_si512(row(0));
    rows = _mm512_inserti32x4(rows, row(1), 1);
    rows = _mm512_inserti32x4(rows, row(2), 2);
    rows = _mm512_inserti32x4(rows, row(3), 3);
  }
  // Moves keys 4 i .. 4 i + 3 of all dimensions to quarter i, then transposes its 4 x 4 bytes.
  const __m512i quarters = _mm512_permutexvar_epi32(
      _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0), rows);
  const __m512i transpose =
      _mm512_broadcast_i32x4(_mm_set_epi8(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0));
  return _mm512_xor_si512(_mm512_shuffle_epi8(quarters, transpose), _mm512_set1_epi8(-128));
}

// Twice the codes in the low (0) or high (1) halves of bytes.
template <int kHalf>
inline __m512i TwiceCodes(__m512i pairs) {
  const __m512i moved = kHalf == 0 ? _mm512_slli_epi16(pairs, 1) : _mm512_srli_epi16(pairs, 3);
  return _mm512_and_si512(moved, _mm512_set1_epi8(0x1e));
}

// key + 15, twice a code, of the first (0) or last (1) four of eight dimensions.
template <QuadForm kForm, int kQuadOf>
inline __m512i LoadKeyQuads(const Int4Pair* key, int, int) {
  return TwiceCodes<kQuadOf>(_mm512_loadu_si512(key));
}

// 256 high + low, as floats.
inline __m512 Join(__m512i high, __m512i low) {
  return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(high, 8), low));
}

// scores[r][16 g + j] = q[r] key[g][j] for kRows rows and kGroups groups from `first`.
template <int kRows, int kGroups, QuadForm kForm, typename Element>
[[gnu::noinline]] void ByteScoreBlock(const AttentionShape& shape, const ByteQuery* query,
                                      const SplitSide<Element>& side, int first, float* scores) {
  __m512i high[kRows][kGroups], low[kRows][kGroups];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      high[r][g] = _mm512_set1_epi32(query[r].start_high);
      low[r][g] = _mm512_set1_epi32(query[r].start_low);
    }
  }
  const Element* keys[kGroups];
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) keys[g] = side.at[first + g];
  const Element* ahead[kGroups];
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) ahead[g] = side.ahead[first + g];
  const uintptr_t zero = OpaqueZero();
  const int64_t step =
      kQuad * (kForm == QuadForm::kReady ? kAttentionKeyGroup : int64_t{shape.block_size});
  const auto add = [&]<int kQuadOf>(int d) {
    __m512i key[kGroups];
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      key[g] = LoadKeyQuads<kForm, kQuadOf>(keys[g], shape.block_size, shape.head_dim - d);
      if constexpr (kQuadOf + 1 == kQuadsAtOnce<Element>) {
        if constexpr (kForm != QuadForm::kReady) PrefetchAfter(keys[g], ahead[g], zero);
        keys[g] += step;
        ahead[g] += step;
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i upper = Quad(query[r].high + d), lower = Quad(query[r].low + d);
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) {
        AddQuads(high[r][g], key[g], upper);
        AddQuads(low[r][g], key[g], lower);
      }
    }
  };
  for (int d = 0; d < shape.head_dim; d += kQuad * kQuadsAtOnce<Element>) {
    add.template operator()<0>(d);
    if constexpr (kQuadsAtOnce<Element> == 2) add.template operator()<1>(d + kQuad);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      _mm512_storeu_ps(scores + r * kAttentionSplit + (first + g) * kAttentionKeyGroup,
                       _mm512_mul_ps(Join(high[r][g], low[r][g]), _mm512_set1_ps(query[r].unit)));
    }
  }
}

// Groups [first, last) for kRows rows, as many groups at once as there are accumulators.
template <int kRows, QuadForm kForm, typename Element>
inline void ByteScoreRows(const AttentionShape& shape, const ByteQuery* query,
                          const SplitSide<Element>& keys, int first, int last, float* scores) {
  constexpr int kMost = kRows > 3 ? 2 : 4;
  for (; last - first >= kMost; first += kMost) {
    ByteScoreBlock<kRows, kMost, kForm, Element>(shape, query, keys, first, scores);
  }
  for (; first < last; ++first) {
    ByteScoreBlock<kRows, 1, kForm, Element>(shape, query, keys, first, scores);
  }
}

// A row's weights of a split: (256 high + low) unit.
struct ByteWeights {
  uint8_t* high;  // [kAttentionSplit], low behind it
  float unit = 0;
};

// Stores four groups of whole numbers below 65536: all high bytes, and all low bytes.
inline void StoreByteWeights(const __m512i* u, uint8_t* high, uint8_t* low) {
  const __m512i a = _mm512_packus_epi32(u[0], u[1]), b = _mm512_packus_epi32(u[2], u[3]);
  const __m512i byte = _mm512_set1_epi16(255);
  // Packing works on quarters: number 4 q + i of group g moves to quarter q.
  const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  const __m512i upper = _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8));
  const __m512i lower = _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte));
  _mm512_storeu_si512(high, _mm512_permutexvar_epi32(order, upper));
  _mm512_storeu_si512(low, _mm512_permutexvar_epi32(order, lower));
}

// The body of WeighBytes; kWhole: the row sees the whole split.
template <bool kWhole>
inline void WeighByteScores(const AttentionShape& shape, const RowKeys& keys, const float* scores,
                            ByteWeights* weights, float* max, float* sum) {
  const KeyRange range = keys.range;
  const GroupScales& scales = *keys.scales;
  const int first = kWhole ? 0 : range.low / kAttentionKeyGroup;
  const int last =
      kWhole ? kSplitGroups : (range.high + kAttentionKeyGroup - 1) / kAttentionKeyGroup;
  const auto seen = [&](__m512 v, __m512 other, int i) {
    if (kWhole) return v;
    return _mm512_mask_mov_ps(other, KeyMask(range, i * kAttentionKeyGroup) & 0xffff, v);
  };
  const __m512 none = _mm512_set1_ps(-__builtin_inff()), zero = _mm512_setzero_ps();
  __m512 highest = none;
  __m512 score[kSplitGroups];
  for (int i = first; i < last; ++i) {
    const __m512 v =
        _mm512_mul_ps(_mm512_loadu_ps(scores + i * 16), _mm512_loadu_ps(scales.keys[i]));
    score[i] = seen(ScoresOf(shape, v, keys, i * 16), none, i);
    highest = _mm512_max_ps(highest, score[i]);
  }
  *max = _mm512_reduce_max_ps(highest);
  const __m512 shift = _mm512_set1_ps(*max);
  __m512 total = zero;
  // No number is negative, so their bits have the same order, and NaN is the largest.
  __m512i most = _mm512_setzero_si512();
  for (int i = first; i < last; ++i) {
    const __m512 weight = seen(RoughExp2(_mm512_sub_ps(score[i], shift)), zero, i);
    total = _mm512_add_ps(total, weight);
    score[i] = seen(_mm512_mul_ps(weight, _mm512_loadu_ps(scales.values[i])), zero, i);
    most = _mm512_max_epu32(most, _mm512_castps_si512(score[i]));
  }
  _mm512_storeu_ps(sum, total);
  float largest = __builtin_bit_cast(float, _mm512_reduce_max_epu32(most));
  if (largest < 1e-33f) largest = 1e-33f;  // a NaN stays, so all outputs are NaN
  weights->unit = largest / 65535;
  const __m512 factor = _mm512_set1_ps(65535 / largest);
  for (int i = first / 4 * 4; i < last; i += 4) {
    __m512i u[4];
    for (int j = 0; j < 4; ++j) {
      const bool touched = kWhole || (i + j >= first && i + j < last);
      u[j] = _mm512_cvtps_epi32(touched ? _mm512_mul_ps(score[i + j], factor) : zero);
    }
    uint8_t* const high = weights->high + i * kAttentionKeyGroup;
    StoreByteWeights(u, high, high + kAttentionSplit);
  }
}

// Converts a row's scores in its range to weights 2^(score - max) times the values' scales, in
// whole units of the largest product over 65535; those of other keys become 0. Sets max, and sum to
// the sum of the weights before scaling and rounding.
[[gnu::noinline]] inline void WeighBytes(const AttentionShape& shape, const RowKeys& keys,
                                         const float* scores, ByteWeights* weights, float* max,
                                         float* sum) {
  if (keys.range.low == 0 && keys.range.high == kAttentionSplit) {
    return WeighByteScores<true>(shape, keys, scores, weights, max, sum);
  }
  __builtin_memset(weights->high, 0, 2 * kAttentionSplit);
  WeighByteScores<false>(shape, keys, scores, weights, max, sum);
}

// Loads 64 dimensions of a value, of which `dims` exist.
inline __m512i LoadByteValue(const int8_t* value, int dims) {
  if (dims >= kQuadUnit) return _mm512_loadu_si512(value);
  return _mm512_maskz_loadu_epi8((uint64_t{1} << dims) - 1, value);
}

// Four values of 64 dimensions, `stride` apart, as quads: register i holds in its quarter j
// dimensions 16 j + 4 i and the three after it.
inline void InterleaveValues(const int8_t* value, int64_t stride, int dims, __m512i* quads) {
  const __m512i a = LoadByteValue(value, dims);
  const __m512i b = LoadByteValue(value + stride, dims);
  const __m512i c = LoadByteValue(value + 2 * stride, dims);
  const __m512i d = LoadByteValue(value + 3 * stride, dims);
  const __m512i low_ab = _mm512_unpacklo_epi8(a, b), low_cd = _mm512_unpacklo_epi8(c, d);
  quads[0] = _mm512_unpacklo_epi16(low_ab, low_cd);
  quads[1] = _mm512_unpackhi_epi16(low_ab, low_cd);
  const __m512i high_ab = _mm512_unpackhi_epi8(a, b), high_cd = _mm512_unpackhi_epi8(c, d);
  quads[2] = _mm512_unpacklo_epi16(high_ab, high_cd);
  quads[3] = _mm512_unpackhi_epi16(high_ab, high_cd);
}

// The same of four values of int4, which are interleaved in the cache: a quarter of a register
// holds 8 dimensions.
inline void InterleaveValues(const Int4Pair* value, int64_t, int dims, __m512i* quads) {
  const int lanes = (dims + 7) / 8 * 4;
  const auto load = [&](int first) {
    const int count = lanes - first;
    if (count <= 0) return _mm512_setzero_si512();
    const auto mask = static_cast<__mmask16>(count >= 16 ? 0xffff : (1 << count) - 1);
    return _mm512_maskz_loadu_epi32(mask, value + 4 * first);
  };
  const __m512i lower = load(0), upper = load(16);
  const __m512i even = _mm512_shuffle_i32x4(lower, upper, 0x88);
  const __m512i odd = _mm512_shuffle_i32x4(lower, upper, 0xdd);
  const __m512i middle = _mm512_set1_epi8(15);
  quads[0] = _mm512_sub_epi8(TwiceCodes<0>(even), middle);
  quads[1] = _mm512_sub_epi8(TwiceCodes<1>(even), middle);
  quads[2] = _mm512_sub_epi8(TwiceCodes<0>(odd), middle);
  quads[3] = _mm512_sub_epi8(TwiceCodes<1>(odd), middle);
}

// Where dimension `dim`, a multiple of 64, of four values begins.
inline const int8_t* ValuesAt(const int8_t* values, int dim) { return values + dim; }
inline const Int4Pair* ValuesAt(const Int4Pair* values, int dim) { return values + 2 * dim; }

// Stores up to 64 dimensions, acc[r][dim ..], from the sums in the order of InterleaveValues().
inline void StoreSums(const AttentionShape& shape, const __m512* sum, int dim, float* acc) {
  const __m512 a = _mm512_shuffle_f32x4(sum[0], sum[1], 0x88);
  const __m512 b = _mm512_shuffle_f32x4(sum[2], sum[3], 0x88);
  const __m512 c = _mm512_shuffle_f32x4(sum[0], sum[1], 0xdd);
  const __m512 d = _mm512_shuffle_f32x4(sum[2], sum[3], 0xdd);
  const __m512 ordered[4] = {_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(c, d, 0x88),
                             _mm512_shuffle_f32x4(a, b, 0xdd), _mm512_shuffle_f32x4(c, d, 0xdd)};
  for (int i = 0; i < 4 && dim + i * 16 < shape.padded_dim; ++i) {
    _mm512_storeu_ps(acc + dim + i * 16, ordered[i]);
  }
}

// Bytes of a group of values in scratch.
inline int64_t ReadyGroupBytes(const AttentionShape& shape) {
  return int64_t{kAttentionKeyGroup} * ((shape.head_dim + kQuadUnit - 1) / kQuadUnit * kQuadUnit);
}

// Sums the weighted values of quads [begin, end) of keys: dimensions [dim, dim + 64) of kRows rows.
template <int kRows, QuadForm kForm, typename Element>
[[gnu::noinline]] void AddByteValues(const AttentionShape& shape, const SplitSide<Element>& values,
                                     int begin, int end, int dim, const ByteWeights* weights,
                                     float* acc) {
  constexpr int kQuadsPerGroup = kAttentionKeyGroup / kQuad;
  __m512i high[kRows][4], low[kRows][4];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) high[r][i] = low[r][i] = _mm512_setzero_si512();
  }
  const int64_t step = kForm == QuadForm::kReady ? ReadyGroupBytes(shape) / kQuadsPerGroup
                                                 : int64_t{kQuad} * shape.value_size;
  // Lines of 64 dimensions of four values.
  const int64_t first = kIsInt4<Element> ? 2 * dim : dim;
  const int64_t end_of_lines = kIsInt4<Element> && first + 128 < step ? first + 128 : step;
  const int64_t line = kIsInt4<Element> ? 64 : shape.value_size;
  const uintptr_t zero = OpaqueZero();
  for (int p = begin; p < end; ++p) {
    const Element* value = values.at[p / kQuadsPerGroup] + p % kQuadsPerGroup * step;
    __m512i quads[4];
    if constexpr (kForm == QuadForm::kReady) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) quads[i] = _mm512_loadu_si512(value + dim * kQuad + i * 64);
    } else {
      const Element* ahead = values.ahead[p / kQuadsPerGroup] + p % kQuadsPerGroup * step;
      for (int64_t i = first; i < end_of_lines; i += line)
        PrefetchAfter(value + i, ahead + i, zero);
      InterleaveValues(ValuesAt(value, dim), shape.value_size, shape.head_dim - dim, quads);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const uint8_t* weight = weights[r].high + p * kQuad;
      const __m512i upper = Quad(weight), lower = Quad(weight + kAttentionSplit);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        AddQuads(high[r][i], upper, quads[i]);
        AddQuads(low[r][i], lower, quads[i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    __m512 sum[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      sum[i] = _mm512_mul_ps(Join(high[r][i], low[r][i]), _mm512_set1_ps(weights[r].unit));
    }
    StoreSums(shape, sum, dim, acc + r * shape.padded_dim);
  }
}

// With more rows than this, the quads of a split are written to scratch once for all rows.
constexpr int kFewByteRows = 6;

// Quantizes to whole units of the largest over 32639 = 127 * 256 + 127, as two signed bytes:
// ByteQuery.
inline void QuantizeQuery(const AttentionShape& shape, const float* q, int key_offset,
                          int8_t* target) {
  __m512i most = _mm512_setzero_si512();
  for (int i = 0; i < shape.head_dim; i += 16) {
    const __m512 v = Vec::LoadN(q + i, shape.head_dim - i);
    most = _mm512_max_epu32(most, _mm512_castps_si512(_mm512_abs_ps(v)));
  }
  const float largest = __builtin_bit_cast(float, _mm512_reduce_max_epu32(most));
  float unit = largest < 1e-30f ? 1e-30f / 32639 : largest / 32639;  // NaN if any element is
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
  const int32_t starts[2] = {-key_offset * _mm512_reduce_add_epi32(sum_high),
                             -key_offset * _mm512_reduce_add_epi32(sum_low)};
  unit *= shape.query_scale;
  __builtin_memcpy(target + 2 * shape.padded_dim, starts, 8);
  __builtin_memcpy(target + 2 * shape.padded_dim + 8, &unit, 4);
}

template <typename Key>
void LoadByteQueries(const AttentionShape& shape, const AttentionTile& tile,
                     const AttentionScratch& scratch) {
  PrefetchQueries(shape, tile);
  float rotated[kMaxInt4Dim];
  for (int row = 0; row < tile.rows; ++row) {
    const int32_t r = tile.first_row + row;
    const float* q = tile.q + r / shape.group * tile.q_stride +
                     static_cast<int64_t>(r % shape.group) * shape.head_dim;
    if constexpr (kIsInt4<Key>) {
      __builtin_memcpy(rotated, q, shape.head_dim * sizeof(float));
      RotateRow(rotated, shape.head_dim, 1.0f);
      q = rotated;
    }
    QuantizeQuery(shape, q, kKeyOffset<Key>, QueryBytes(shape, scratch, row));
  }
}

// Writes the quads of a split's keys, or values, to scratch: groups [first, last) of `quads`.
template <typename Element>
SplitSide<int8_t> ReadyKeys(const AttentionShape& shape, const SplitSide<Element>& keys, int first,
                            int last, const AttentionScratch& scratch) {
  SplitSide<int8_t> ready = {};
  const int64_t group_bytes = int64_t{kAttentionKeyGroup} * shape.padded_dim;
  for (int g = first; g < last; ++g) {
    int8_t* to = reinterpret_cast<int8_t*>(scratch.pages) + g * group_bytes;
    ready.at[g] = to;
    const Element* key = keys.at[g];
    const auto store = [&]<int kQuadOf>(int d) {
      const __m512i quads =
          LoadKeyQuads<QuadForm::kStrided, kQuadOf>(key, shape.block_size, shape.head_dim - d);
      _mm512_storeu_si512(to + d * kAttentionKeyGroup, quads);
    };
    for (int d = 0; d < shape.head_dim; d += kQuad * kQuadsAtOnce<Element>) {
      store.template operator()<0>(d);
      if constexpr (kQuadsAtOnce<Element> == 2) store.template operator()<1>(d + kQuad);
      key += int64_t{kQuad} * shape.block_size;
    }
  }
  return ready;
}
template <typename Element>
SplitSide<int8_t> ReadyValues(const AttentionShape& shape, const SplitSide<Element>& side,
                              int first, int last, const AttentionScratch& scratch) {
  SplitSide<int8_t> ready = {};
  int8_t* const pages = reinterpret_cast<int8_t*>(scratch.pages);
  for (int g = first; g < last; ++g) {
    int8_t* to =
        pages + int64_t{kAttentionSplit} * 2 * shape.padded_dim + g * ReadyGroupBytes(shape);
    ready.at[g] = to;
    for (int key = 0; key < kAttentionKeyGroup; key += kQuad) {
      for (int dim = 0; dim < shape.head_dim; dim += kQuadUnit, to += kQuad * kQuadUnit) {
        const Element* values = side.at[g] + int64_t{key} * shape.value_size;
        InterleaveValues(ValuesAt(values, dim), shape.value_size, shape.head_dim - dim,
                         reinterpret_cast<__m512i*>(to));
      }
    }
  }
  return ready;
}

// The weights of kRows rows from `row`, all of which see a part of the split.
template <int kRows, QuadForm kForm, typename Element>
void WeighByteRows(const AttentionShape& shape, const AttentionScratch& scratch,
                   const SplitSide<Element>& side, const RowKeys* keys, int row,
                   const AttentionState& state, ByteWeights* weights) {
  const int first = keys[row].range.low / kAttentionKeyGroup;
  const int last = (keys[row + kRows - 1].range.high + kAttentionKeyGroup - 1) / kAttentionKeyGroup;
  ByteQuery query[kRows];
  for (int r = 0; r < kRows; ++r) query[r] = LoadByteQuery(shape, scratch, row + r);
  ByteScoreRows<kRows, kForm, Element>(shape, query, side, first, last, scratch.scores);
  for (int r = row; r < row + kRows; ++r) {
    weights[r].high = reinterpret_cast<uint8_t*>(scratch.weights + r * kAttentionSplit);
    WeighBytes(shape, keys[r], scratch.scores + (r - row) * kAttentionSplit, weights + r,
               state.max + r, state.sum + r * kSumLanes);
  }
}

template <QuadForm kForm, typename Element>
void WeighAllByteRows(const AttentionShape& shape, const AttentionScratch& scratch,
                      SplitSide<Element>& side, const RowKeys* keys, RowRange rows,
                      const AttentionState& state, ByteWeights* weights) {
  ForRowBlocks(rows.first, rows.last, [&]<int kRows>(int row) {
    if (kForm != QuadForm::kReady && row != rows.first) PrefetchNothing(&side);
    WeighByteRows<kRows, kForm, Element>(shape, scratch, side, keys, row, state, weights);
  });
}

template <int kRows, QuadForm kForm, typename Element>
void AddRowValues(const AttentionShape& shape, const SplitSide<Element>& values,
                  const RowKeys* keys, int row, const ByteWeights* weights,
                  const AttentionState& state) {
  if constexpr (kRows > 3) {
    AddRowValues<kRows / 2, kForm, Element>(shape, values, keys, row, weights, state);
    AddRowValues<kRows / 2, kForm, Element>(shape, values, keys, row + kRows / 2, weights, state);
  } else {
    const int begin = keys[row].range.low / kQuad;
    const int end = (keys[row + kRows - 1].range.high + kQuad - 1) / kQuad;
    for (int dim = 0; dim < shape.head_dim; dim += kQuadUnit) {
      AddByteValues<kRows, kForm, Element>(shape, values, begin, end, dim, weights + row,
                                           state.acc + int64_t{row} * shape.padded_dim);
    }
  }
}

template <QuadForm kForm, typename Element>
void AddAllByteValues(const AttentionShape& shape, SplitSide<Element>& values, const RowKeys* keys,
                      RowRange rows, const ByteWeights* weights, const AttentionState& state) {
  ForRowBlocks(rows.first, rows.last, [&]<int kRows>(int row) {
    if (kForm != QuadForm::kReady && row != rows.first) PrefetchNothing(&values);
    AddRowValues<kRows, kForm, Element>(shape, values, keys, row, weights, state);
  });
}

// Processes a few rows directly from the cache.
template <typename Key, typename Value>
void AttendFewByteRows(const AttentionShape& shape, const AttentionScratch& scratch,
                       Chunk<Key, Value, kSplitGroups>& chunk, const RowKeys* keys, RowRange rows,
                       const AttentionState& state, ByteWeights* weights) {
  const bool adjacent = shape.block_size == kAttentionKeyGroup && shape.head_dim % kQuad == 0;
  if (!kIsInt4<Key> && adjacent) {
    WeighAllByteRows<QuadForm::kAdjacent, Key>(shape, scratch, chunk.keys, keys, rows, state,
                                               weights);
  } else {
    WeighAllByteRows<QuadForm::kStrided, Key>(shape, scratch, chunk.keys, keys, rows, state,
                                              weights);
  }
  AddAllByteValues<QuadForm::kStrided, Value>(shape, chunk.values, keys, rows, weights, state);
}

// Computes the weights, then the values of all rows, so that the first-level cache holds the
// split's keys, then its values.
template <typename Key, typename Value>
void AttendBytes(const AttentionShape& shape, const AttentionTile& tile,
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
  auto ready_keys = ReadyKeys(shape, chunk.keys, first, last, scratch);
  WeighAllByteRows<QuadForm::kReady, int8_t>(shape, scratch, ready_keys, keys, rows, state,
                                             weights);
  auto ready_values = ReadyValues(shape, chunk.values, first, last, scratch);
  AddAllByteValues<QuadForm::kReady, int8_t>(shape, ready_values, keys, rows, weights, state);
}

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_INT8_INL_H_
