// File: cc/ops/paged_attention/attention_split_inl.h
// What the AVX-512 kernels share that take a whole split of keys at once and round its weights.
// Include it after vec_avx512.h.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_SPLIT_INL_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_SPLIT_INL_H_

#include "cc/ops/paged_attention/attention_ask_inl.h"

namespace pagemill::ops {
namespace {

constexpr int kDotUnit = 32;  // dimensions whose values are loaded, and keys weighted, at once

// 2^x for weights that are rounded next: 2^floor(x) times a cubic in the fraction. The coefficients
// minimize the largest relative error (8.6e-5) with the constant term held at 1.
inline __m512 RoughExp2(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, 0x09);  // x - floor(x), no exceptions
  __m512 p = _mm512_set1_ps(7.7067198e-2f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.2764482e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9511682e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, x);
}

// The keys [low, high) as a mask of the 32 that begin at `first`.
inline uint32_t KeyMask(KeyRange range, int first) {
  const auto below = [first](int key) -> uint32_t {
    const int n = key - first;
    return n >= 32 ? ~uint32_t{0} : n <= 0 ? 0 : (uint32_t{1} << n) - 1;
  };
  return below(range.high) & ~below(range.low);
}

// The groups of the split at `begin` that rows of the tile see: [first, last); last == 0: none.
struct SplitKeys {
  RowRange rows;
  int first = 0;
  int last = 0;
};

// Sets keys[row] of the rows that see a part of the split, and all rows' states to "no key".
inline SplitKeys KeysOfSplit(const AttentionShape& shape, const AttentionTile& tile, int32_t begin,
                             const AttentionState& state, RowKeys* keys) {
  for (int row = 0; row < tile.rows; ++row) state.max[row] = -__builtin_inff();
  SplitKeys split{.rows = RowsThatSee(shape, tile, begin, kAttentionSplit)};
  const RowRange rows = split.rows;
  if (rows.first >= rows.last) return split;
  for (int row = rows.first; row < rows.last; ++row) {
    const KeyRange range = VisibleKeys(shape, tile, row, begin, kAttentionSplit);
    keys[row] = KeysOfRow(shape, tile, row, begin, range);
  }
  split.first = keys[rows.first].range.low / kAttentionKeyGroup;
  split.last = (keys[rows.last - 1].range.high + kAttentionKeyGroup - 1) / kAttentionKeyGroup;
  return split;
}

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_SPLIT_INL_H_
