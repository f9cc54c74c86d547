// File: cc/ops/kv_page.h
// Size and layout of a block of a paged KV cache (docs/program_format.md), for the ops that store
// and read it and for the code that plans its memory.
//
//   int64_t elements = KvBlockElements(DType::kBF16, {.kv_heads = 3, .head_dim = 64}, 16);  // 6144
//
// An int8 block holds, after its K and V of int8, a scale (f32) for each head and token of K, then
// those of V; all of it counts as elements of one byte.
#ifndef PAGEMILL_CC_OPS_KV_PAGE_H_
#define PAGEMILL_CC_OPS_KV_PAGE_H_

#include <cstdint>

#include "cc/tensor/dtype.h"

namespace pagemill::ops {

struct KvHeads {
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
};

inline bool IsKvDType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kI8 ||
         dtype == DType::kF8E4M3;
}

// Elements of one head and token, of K or of V.
inline int64_t KvRowElements(DType dtype, int64_t head_dim) {
  return head_dim + (dtype == DType::kI8 ? static_cast<int64_t>(sizeof(float)) : 0);
}

inline int64_t KvBlockElements(DType dtype, const KvHeads& heads, int64_t block_size) {
  return 2 * heads.kv_heads * block_size * KvRowElements(dtype, heads.head_dim);
}

// Offset of the scales of an int8 block.
inline int64_t KvScalesOffsetBytes(const KvHeads& heads, int64_t block_size) {
  return 2 * heads.kv_heads * heads.head_dim * block_size;
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_KV_PAGE_H_
