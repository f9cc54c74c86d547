// File: cc/ops/paged_attention/attention_ask_inl.h
// How the AVX-512 kernels read a cache that lies in memory. Its pages are too short and too
// scattered for the CPU to see them coming, so while a split is computed each line that is read
// asks for one that is read a split later. Include it after vec_avx512.h.
//
// The CPU drops what is asked for while its queue of missing lines is full. Where a load waits, all
// that follows it in the window of execution would be asked for at once, and be dropped, and be
// waited for in its turn. So asking waits for the line beside it: it happens as often as memory
// delivers.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_ASK_INL_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_ASK_INL_H_

#include "cc/ops/paged_attention/attention_tile_inl.h"

namespace pagemill::ops {
namespace {

constexpr int kSplitGroups = kAttentionSplitGroups;

// 0, which the compiler takes for any number.
inline uintptr_t HiddenZero() {
  uintptr_t zero = 0;
  asm("" : "+r"(zero));
  return zero;
}

// Asks for the line at `ahead` once the byte at `now` has been read.
inline void AskAfter(const void* now, const void* ahead, uintptr_t zero) {
  const uintptr_t read = *static_cast<const uint8_t*>(now);
  asm volatile("");  // GCC leaves out calls of functions that do nothing but ask
  _mm_prefetch(static_cast<const char*>(ahead) + (read & zero), _MM_HINT_T1);
}

// Points the groups [first, last) of the chunk to what scratch.ahead says.
template <typename Element>
void LookAhead(const AttentionShape& shape, const AttentionScratch& scratch, int first, int last,
               Chunk<Element, kSplitGroups>* chunk) {
  if (scratch.ahead == nullptr) return;
  constexpr int kLine = 64 / sizeof(Element);
  const int64_t page = static_cast<int64_t>(shape.head_dim) * shape.block_size;
  const int count = scratch.ahead->count < last - first ? scratch.ahead->count : last - first;
  for (int i = 0; i < count; ++i) {
    const AttentionGroup& group = scratch.ahead->groups[i];
    const Element* base = LocateBlock<Element>(shape, group.block);
    // While a line of each group is read, as many lines of all of the block's: group by group.
    chunk->keys_ahead[first + i] =
        base + group.kv_head * page + group.offset / kAttentionKeyGroup * kLine;
    chunk->values_ahead[first + i] = base + (shape.kv_heads + group.kv_head) * page +
                                     static_cast<int64_t>(group.offset) * shape.head_dim;
    if constexpr (kHasScales<Element>) {
      const float* scales = reinterpret_cast<const float*>(base + 2 * shape.kv_heads * page) +
                            group.kv_head * shape.block_size + group.offset;
      const uintptr_t zero = HiddenZero();
      AskAfter(chunk->key_scales[first + i], scales, zero);
      AskAfter(chunk->value_scales[first + i], scales + shape.kv_heads * shape.block_size, zero);
    }
  }
}

// For rows after the first ones, with which all of it has been asked for.
template <typename Element>
void AskForNoKeys(Chunk<Element, kSplitGroups>* chunk) {
  for (int g = 0; g < kSplitGroups; ++g) chunk->keys_ahead[g] = chunk->keys[g];
}
template <typename Element>
void AskForNoValues(Chunk<Element, kSplitGroups>* chunk) {
  for (int g = 0; g < kSplitGroups; ++g) chunk->values_ahead[g] = chunk->values[g];
}

// Asks for the tile's queries, and for those of the next KV head, which this thread may do next.
inline void AskForQueries(const AttentionShape& shape, const AttentionTile& tile) {
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

// Asks for the values of groups [first, last) while the keys are paired for many rows.
template <typename Element>
void AskForValues(const AttentionShape& shape, const Chunk<Element, kSplitGroups>& chunk, int first,
                  int last) {
  const int64_t bytes = int64_t{sizeof(Element)} * kAttentionKeyGroup * shape.head_dim;
  for (int g = first; g < last; ++g) {
    const char* page = reinterpret_cast<const char*>(chunk.values[g]);
    for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch(page + i, _MM_HINT_T1);
  }
}

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_ASK_INL_H_
