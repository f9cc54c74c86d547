// File: cc/ops/paged_attention/attention_dots_inl.h
// A split of bf16 or f8_e4m3 keys and values for all rows of a tile, over the inner loops of
// attention_bf16_inl.h: the functions of an AttentionKernel.
//
// For many rows, groups of 16 keys or values are first written to scratch as adjacent pairs of
// bf16, so that dot products need no permutation (PageForm::kPaired): keys as [head_dim / 2, 16,
// 2], values as [8, padded_dim, 2] in the order of unpacking, zero beyond head_dim. Pairs hold the
// same numbers as the cache, so results do not depend on which of the two a row reads.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_DOTS_INL_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_DOTS_INL_H_

#include "cc/ops/paged_attention/attention_bf16_inl.h"

namespace pagemill::ops {
namespace {

// The forms of a cache's pages, and whether dimensions d, d + 1 of its keys are side by side.
template <typename Element>
constexpr PageForm kAdjacentForm =
    sizeof(Element) == 1 ? PageForm::kAdjacentF8 : PageForm::kAdjacent;
template <typename Element>
constexpr PageForm kStridedForm = sizeof(Element) == 1 ? PageForm::kStridedF8 : PageForm::kStrided;
template <typename Element>
bool AreAdjacent(const AttentionShape& shape) {
  return shape.block_size == kAttentionKeyGroup &&
         shape.head_dim % (2 * kPairsAtOnce<kAdjacentForm<Element>>) == 0;
}

// Address of group `group` of keys in scratch; groups of values follow all keys.
inline uint16_t* PairPage(const AttentionShape& shape, int group, const AttentionScratch& scratch) {
  return scratch.pages + int64_t{group} * kAttentionKeyGroup * shape.padded_dim;
}

template <PageForm kForm>
void StoreKeyPairs(const AttentionShape& shape, const PageElement<kForm>* keys, uint16_t* page) {
  constexpr int kPairs = kPairsAtOnce<kForm>;
  for (int d = 0; d < shape.head_dim; d += 2 * kPairs) {
    __m512i pairs[kPairs];
    LoadKeys<kForm>(keys + int64_t{d} * shape.block_size, shape.block_size, shape.head_dim - d,
                    pairs);
    for (int i = 0; i < kPairs; ++i) {
      _mm512_storeu_si512(page + (d + 2 * i) * kAttentionKeyGroup, pairs[i]);
    }
  }
}

template <typename Element>
const uint16_t* PairKeys(const AttentionShape& shape, const Element* keys, int group,
                         const AttentionScratch& scratch) {
  uint16_t* const page = PairPage(shape, group, scratch);
  if (AreAdjacent<Element>(shape)) {
    StoreKeyPairs<kAdjacentForm<Element>>(shape, keys, page);
  } else {
    StoreKeyPairs<kStridedForm<Element>>(shape, keys, page);
  }
  return page;
}

// Loads 32 dimensions of a value, of which `count` exist.
inline __m512i LoadValue(const uint16_t* value, int count) {
  if (count >= kDotUnit) return _mm512_loadu_si512(value);
  return _mm512_maskz_loadu_epi16((uint32_t{1} << count) - 1, value);
}
inline const uint16_t* PairValues(const AttentionShape& shape, const uint16_t* values, int group,
                                  const AttentionScratch& scratch) {
  uint16_t* const page = PairPage(shape, kSplitGroups + group, scratch);
  uint16_t* to = page;
  for (int key = 0; key < kAttentionKeyGroup; key += 2) {
    const uint16_t* value = values + int64_t{key} * shape.head_dim;
    for (int dim = 0; dim < shape.head_dim; dim += kDotUnit, to += 2 * kDotUnit) {
      const __m512i a = LoadValue(value + dim, shape.head_dim - dim);
      const __m512i b = LoadValue(value + shape.head_dim + dim, shape.head_dim - dim);
      _mm512_storeu_si512(to, _mm512_unpacklo_epi16(a, b));
      _mm512_storeu_si512(to + kDotUnit, _mm512_unpackhi_epi16(a, b));
    }
  }
  return page;
}

inline const uint16_t* PairValues(const AttentionShape& shape, const uint8_t* values, int group,
                                  const AttentionScratch& scratch) {
  uint16_t* const page = PairPage(shape, kSplitGroups + group, scratch);
  uint16_t* to = page;
  for (int key = 0; key < kAttentionKeyGroup; key += 2) {
    const uint8_t* value = values + int64_t{key} * shape.head_dim;
    for (int dim = 0; dim < shape.head_dim; dim += kDotUnit, to += 2 * kDotUnit) {
      const int dims = shape.head_dim - dim;
      __m512i lower, upper;
      PairF8Values(LoadF8Value(value + dim, dims), LoadF8Value(value + shape.head_dim + dim, dims),
                   &lower, &upper);
      _mm512_storeu_si512(to, lower);
      _mm512_storeu_si512(to + kDotUnit, upper);
    }
  }
  return page;
}

// Writes rows of bf16 to scratch.q, [rows, padded_dim], zero beyond head_dim.
inline void LoadRoundedQueries(const AttentionShape& shape, const AttentionTile& tile,
                               const AttentionScratch& scratch) {
  PrefetchQueries(shape, tile);
  for (int row = 0; row < tile.rows; ++row) {
    const int32_t r = tile.first_row + row;
    const float* q = tile.q + r / shape.group * tile.q_stride +
                     static_cast<int64_t>(r % shape.group) * shape.head_dim;
    uint16_t* target = reinterpret_cast<uint16_t*>(scratch.q) + row * shape.padded_dim;
    for (int i = 0; i < shape.padded_dim; i += Vec::kLanes) {
      const int left = shape.head_dim - i;
      const __m512 v = left > 0 ? Vec::LoadN(q + i, left) : Vec::Zero();
      _mm256_storeu_si256((__m256i*)(target + i), (__m256i)_mm512_cvtneps_pbh(v));
    }
  }
}

// With more rows than this, the pairs of a chunk are written to scratch once for all rows.
template <typename Element>
constexpr int kFewRows = sizeof(Element) == 1 ? 6 : 12;

// `rows` rows of bf16, `stride` elements apart, as factors of sums. kTiles: the first `count` of
// each, a multiple of 16, as f32 in `space`.
template <DotOrder kOrder>
const DotFactor<kOrder>* Factors(const uint16_t* from, int rows, int64_t stride, int count,
                                 float* space) {
  if constexpr (kOrder == DotOrder::kPairs) {
    return from;
  } else {
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < count; i += 16) {
        const __m256i numbers = _mm256_loadu_si256((const __m256i*)(from + row * stride + i));
        _mm512_storeu_si512(space + row * stride + i,
                            _mm512_slli_epi32(_mm512_cvtepu16_epi32(numbers), 16));
      }
    }
    return space;
  }
}

// The weights of kRows rows from `row`, all of which see a part of the chunk.
template <int kRows, PageForm kForm, DotOrder kOrder>
void WeighRows(const AttentionShape& shape, const AttentionScratch& scratch,
               const PageSide<kForm>& side, const RowKeys* keys, int row,
               const AttentionState& state) {
  const int first = keys[row].range.low / kAttentionKeyGroup;
  const int last = (keys[row + kRows - 1].range.high + kAttentionKeyGroup - 1) / kAttentionKeyGroup;
  const uint16_t* q = reinterpret_cast<const uint16_t*>(scratch.q) + row * shape.padded_dim;
  const auto* const factors = Factors<kOrder>(q, kRows, shape.padded_dim, shape.padded_dim,
                                              reinterpret_cast<float*>(scratch.pages));
  DotScoreRows<kRows, kForm, kOrder>(shape, factors, side, first, last, scratch.scores);
  for (int r = 0; r < kRows; ++r) {
    DotSoftmaxRow(shape, keys[row + r], scratch.scores + r * kDotChunk,
                  scratch.weights + (row + r) * kDotChunk, state.max + row + r,
                  state.sum + (row + r) * kSumLanes);
  }
}

template <PageForm kForm, DotOrder kOrder>
void WeighAllRows(const AttentionShape& shape, const AttentionScratch& scratch,
                  PageSide<kForm>& side, const RowKeys* keys, RowRange rows,
                  const AttentionState& state) {
  ForRowBlocks(rows.first, rows.last, [&]<int kRows>(int row) {
    if (kForm != PageForm::kPaired && row != rows.first) PrefetchNothing(&side);
    WeighRows<kRows, kForm, kOrder>(shape, scratch, side, keys, row, state);
  });
}

template <PageForm kForm, DotOrder kOrder>
void AddAllValues(const AttentionShape& shape, const AttentionScratch& scratch,
                  PageSide<kForm>& values, const RowKeys* keys, RowRange rows,
                  const AttentionState& state) {
  ForRowBlocks(rows.first, rows.last, [&]<int kRows>(int row) {
    if (kForm != PageForm::kPaired && row != rows.first) PrefetchNothing(&values);
    const uint16_t* const weights = scratch.weights + row * kDotChunk;
    const auto* const factors =
        Factors<kOrder>(weights, kRows, kDotChunk, kDotChunk, scratch.scores);
    DotValueRows<kRows, kForm, kOrder>(shape, values, keys + row, factors,
                                       state.acc + row * shape.padded_dim);
  });
}

// Processes a few rows directly from the cache: first the weights, then the values of all rows, so
// that the first-level cache holds the chunk's keys, then its values.
template <typename Element, DotOrder kOrder>
void AttendFewRows(const AttentionShape& shape, const AttentionScratch& scratch,
                   Chunk<Element, Element, kSplitGroups>& chunk, const RowKeys* keys, RowRange rows,
                   const AttentionState& state) {
  if (AreAdjacent<Element>(shape)) {
    WeighAllRows<kAdjacentForm<Element>, kOrder>(shape, scratch, chunk.keys, keys, rows, state);
  } else {
    WeighAllRows<kStridedForm<Element>, kOrder>(shape, scratch, chunk.keys, keys, rows, state);
  }
  AddAllValues<kStridedForm<Element>, kOrder>(shape, scratch, chunk.values, keys, rows, state);
}

template <typename Element>
void AttendDots(const AttentionShape& shape, const AttentionTile& tile,
                const AttentionScratch& scratch, int32_t begin, const AttentionState& state) {
  constexpr DotOrder kOrder = DotOrder::kPairs;
  RowKeys keys[kAttentionTileRows];
  const auto [rows, first, last] = KeysOfSplit(shape, tile, begin, state, keys);
  if (last == 0) return;
  auto chunk = LocateChunk<Element, Element, kSplitGroups>(shape, tile, begin, first, last);
  if (rows.last - rows.first <= kFewRows<Element>) {
    SetPrefetchTargets(shape, scratch, first, last, &chunk);
    return AttendFewRows<Element, kOrder>(shape, scratch, chunk, keys, rows, state);
  }
  PrefetchValues(shape, chunk.values, first, last);
  DotSide paired_keys = {}, paired_values = {};
  for (int g = first; g < last; ++g) {
    paired_keys.at[g] = PairKeys(shape, chunk.keys.at[g], g, scratch);
  }
  WeighAllRows<PageForm::kPaired, kOrder>(shape, scratch, paired_keys, keys, rows, state);
  for (int g = first; g < last; ++g) {
    paired_values.at[g] = PairValues(shape, chunk.values.at[g], g, scratch);
  }
  AddAllValues<PageForm::kPaired, kOrder>(shape, scratch, paired_values, keys, rows, state);
}

// Reorders each 32 dimensions of the accumulators, then divides. Whether a sum that was flushed is
// 0 or -0 depends on how many zeros were added to it: adding 0 makes it 0.
inline void FinishDots(const AttentionShape& shape, const AttentionTile& tile,
                       const AttentionState& state) {
  // Unpacking moves 4 of each 8 dimensions to the first register, the other 4 to the second.
  const __m512i order[2] = {
      _mm512_set_epi32(23, 22, 21, 20, 7, 6, 5, 4, 19, 18, 17, 16, 3, 2, 1, 0),
      _mm512_set_epi32(31, 30, 29, 28, 15, 14, 13, 12, 27, 26, 25, 24, 11, 10, 9, 8)};
  for (int row = 0; row < tile.rows; ++row) {
    for (int i = 0; i < shape.head_dim; i += kDotUnit) {
      float* acc = state.acc + row * shape.padded_dim + i;
      const __m512 a = _mm512_add_ps(_mm512_loadu_ps(acc), _mm512_setzero_ps());
      const __m512 b = _mm512_add_ps(_mm512_loadu_ps(acc + 16), _mm512_setzero_ps());
      _mm512_storeu_ps(acc, _mm512_permutex2var_ps(a, order[0], b));
      _mm512_storeu_ps(acc + 16, _mm512_permutex2var_ps(a, order[1], b));
    }
  }
  Finish<uint16_t>(shape, tile, state);
}

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_DOTS_INL_H_
