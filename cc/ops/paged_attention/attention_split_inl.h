// File: cc/ops/paged_attention/attention_split_inl.h
// Common parts of the AVX-512 kernels that process a whole split of keys at once and round its
// weights: prefetching the cache, and the visible keys of each row. Include it after vec_avx512.h.
//
// Pages of the cache are too short and too scattered for hardware prefetchers. So with each line
// that it reads, a split prefetches a line that is read one split later. The CPU drops prefetches
// while its queue of missing lines is full: issued at once, all that follow a waiting load in the
// out-of-order window would be dropped. So each prefetch waits for the line read with it, and
// prefetches are issued as fast as memory delivers.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_SPLIT_INL_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_SPLIT_INL_H_

#include "cc/ops/paged_attention/attention_tile_inl.h"

namespace pagemill::ops {
namespace {

constexpr int kSplitGroups = kAttentionSplitGroups;

// Opaque zero: makes the prefetch address depend on the load.
inline uintptr_t OpaqueZero() {
  uintptr_t zero = 0;
  asm("" : "+r"(zero));
  return zero;
}

// Prefetches the line at `ahead` once the byte at `now` has been read.
inline void PrefetchAfter(const void* now, const void* ahead, uintptr_t zero) {
  const uintptr_t read = *static_cast<const uint8_t*>(now);
  asm volatile("");  // GCC removes calls of functions that do nothing but prefetch
  _mm_prefetch(static_cast<const char*>(ahead) + (read & zero), _MM_HINT_T1);
}

// Sets the prefetch addresses of groups [first, last) of the chunk from scratch.prefetch.
template <typename Key, typename Value>
void SetPrefetchTargets(const AttentionShape& shape, const AttentionScratch& scratch, int first,
                        int last, Chunk<Key, Value, kSplitGroups>* chunk) {
  if (scratch.prefetch == nullptr) return;
  constexpr int kLine = 64 / sizeof(Key);
  const int count = scratch.prefetch->count < last - first ? scratch.prefetch->count : last - first;
  for (int i = 0; i < count; ++i) {
    const AttentionGroup& group = scratch.prefetch->groups[i];
    const auto head = LocateHead<Key, Value>(shape, group.block, group.kv_head);
    // Lines of keys are interleaved by group: as one line of each group is read, one line of each
    // group of the block is prefetched.
    chunk->keys.ahead[first + i] = head.keys + group.offset / kAttentionKeyGroup * kLine;
    chunk->values.ahead[first + i] =
        head.values + static_cast<int64_t>(group.offset) * shape.value_size;
    if constexpr (kHasScales<Key>) {
      const uintptr_t zero = OpaqueZero();
      PrefetchAfter(chunk->keys.scales[first + i], head.key_scales + group.offset, zero);
      PrefetchAfter(chunk->values.scales[first + i], head.value_scales + group.offset, zero);
    }
  }
}

// For all row blocks after the first one, which prefetches everything.
template <typename Element>
void PrefetchNothing(ChunkSide<Element, kSplitGroups>* side) {
  for (int g = 0; g < kSplitGroups; ++g) side->ahead[g] = side->at[g];
}

// Prefetches the tile's queries, and those of the next KV head, which this thread may compute next.
inline void PrefetchQueries(const AttentionShape& shape, const AttentionTile& tile) {
  const int32_t first = tile.first_row / shape.group;
  const int32_t last = (tile.first_row + tile.rows - 1) / shape.group;
  const int64_t bytes = int64_t{sizeof(float)} * shape.group * shape.head_dim;
  const bool another = tile.kv_head + 1 < shape.kv_heads;
  for (int32_t token = first; token <= last; ++token) {
    const char* q = reinterpret_cast<const char*>(tile.q + token * tile.q_stride);
    for (int64_t i = 0; i < bytes; i += 64) {
      _mm_prefetch(q + i, _MM_HINT_T0);
      if (another) _mm_prefetch(q + bytes + i, _MM_HINT_T1);
    }
  }
}

// Prefetches the values of groups [first, last) while the keys are paired for many rows.
template <typename Element>
void PrefetchValues(const AttentionShape& shape, const ChunkSide<Element, kSplitGroups>& values,
                    int first, int last) {
  const int64_t bytes = int64_t{sizeof(Element)} * kAttentionKeyGroup * shape.value_size;
  for (int g = first; g < last; ++g) {
    const char* page = reinterpret_cast<const char*>(values.at[g]);
    for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch(page + i, _MM_HINT_T1);
  }
}

constexpr int kDotUnit = 32;  // dimensions of values, or keys, that are processed at once

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

// The groups of the split at `begin` that rows of the tile see: [first, last), or last == 0 if
// none.
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
