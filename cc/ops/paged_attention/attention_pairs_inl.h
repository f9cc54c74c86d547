// File: cc/ops/paged_attention/attention_pairs_inl.h
// A group of 16 keys or values, of bf16 or f8_e4m3, as pairs of bf16 that lie side by side in
// scratch, where dot products find them without a permutation (PageForm::kPaired): keys as
// [head_dim / 2, 16, 2], values as [8, padded_dim, 2] in the order that unpacking leaves, zero
// beyond head_dim. Pairs hold the same numbers as the cache does, so results do not depend on who
// read which.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_PAIRS_INL_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_PAIRS_INL_H_

#include "cc/ops/paged_attention/attention_bf16_inl.h"

namespace pagemill::ops {
namespace {

// Where group `group` of keys goes; those of values lie behind all keys.
inline uint16_t* PairPage(const AttentionShape& shape, int group, const AttentionScratch& scratch) {
  return scratch.pages + int64_t{group} * kAttentionKeyGroup * shape.padded_dim;
}

inline const uint16_t* PairKeys(const AttentionShape& shape, const uint16_t* keys, int group,
                                const AttentionScratch& scratch) {
  uint16_t* const page = PairPage(shape, group, scratch);
  for (int d = 0; d < shape.head_dim; d += 2) {
    __m512i pairs[1];
    LoadKeys<PageForm::kStrided>(keys + int64_t{d} * shape.block_size, shape.block_size,
                                 shape.head_dim - d, pairs);
    _mm512_storeu_si512(page + d * kAttentionKeyGroup, pairs[0]);
  }
  return page;
}

inline const uint16_t* PairKeys(const AttentionShape& shape, const uint8_t* keys, int group,
                                const AttentionScratch& scratch) {
  uint16_t* const page = PairPage(shape, group, scratch);
  for (int d = 0; d < shape.head_dim; d += 4) {
    const uint8_t* from = keys + int64_t{d} * shape.block_size;
    __m512i pairs[2];
    LoadF8Keys<false>(from, shape.block_size, shape.head_dim - d, pairs);
    _mm512_storeu_si512(page + d * kAttentionKeyGroup, pairs[0]);
    _mm512_storeu_si512(page + (d + 2) * kAttentionKeyGroup, pairs[1]);
  }
  return page;
}

// 32 dimensions of a value, of which `count` exist.
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

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_PAIRS_INL_H_
