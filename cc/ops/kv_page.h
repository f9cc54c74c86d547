// File: cc/ops/kv_page.h
// Size and layout of a block of a paged KV cache (docs/program_format.md), for the ops that store
// and read it and for the code that plans its memory.
//
//   int64_t elements = KvBlockElements(DType::kBF16, {.kv_heads = 3, .head_dim = 64}, 16);  // 6144
//
// A block of int8, or of int4 (DType::kU4), holds after its K and V a scale (f32) for each head and
// token of K, then those of V; all of it counts as elements of one byte, or of half a byte. A row
// of int4 takes whole fours of bytes (int4_row.h).
#ifndef PAGEMILL_CC_OPS_KV_PAGE_H_
#define PAGEMILL_CC_OPS_KV_PAGE_H_

#include <cstdint>
#include <string_view>

#include "cc/tensor/dtype.h"

namespace pagemill::ops {

struct KvHeads {
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
};

inline bool IsKvDType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kI8 ||
         dtype == DType::kF8E4M3 || dtype == DType::kU4;
}
inline constexpr std::string_view kKvDTypeNames = "f32, bf16, f8_e4m3, i8 or u4";

// True if each row of K and of V has a scale.
inline bool HasKvScales(DType dtype) { return dtype == DType::kI8 || dtype == DType::kU4; }

// Bytes of one head and token of K or of V, without its scale.
inline int64_t KvRowBytes(DType dtype, int64_t head_dim) {
  return dtype == DType::kU4 ? (head_dim + 7) / 8 * 4 : head_dim * RowBytes(dtype, 1);
}

// Elements of one head and token of K or of V, with its scale.
inline int64_t KvRowElements(DType dtype, int64_t head_dim) {
  if (!HasKvScales(dtype)) return head_dim;
  const int64_t bytes = KvRowBytes(dtype, head_dim) + static_cast<int64_t>(sizeof(float));
  return dtype == DType::kU4 ? 2 * bytes : bytes;
}

inline int64_t KvBlockElements(DType dtype, const KvHeads& heads, int64_t block_size) {
  return 2 * heads.kv_heads * block_size * KvRowElements(dtype, heads.head_dim);
}

// Offset of the scales of a block.
inline int64_t KvScalesOffsetBytes(DType dtype, const KvHeads& heads, int64_t block_size) {
  return 2 * heads.kv_heads * KvRowBytes(dtype, heads.head_dim) * block_size;
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_KV_PAGE_H_
