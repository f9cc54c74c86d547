// File: cc/ops/kv_page.h
// Size and layout of a block of a paged KV cache (docs/program_format.md), for the ops that store
// and read it and for the code that plans its memory.
//
//   int64_t elements = KvBlockElements(DType::kBF16, {.kv_heads = 3, .head_dim = 64}, 16);  // 6144
//
// A block has the keys of all heads, then their values, in rows of one type each: KvTypesOf(). If
// these have scales (int8; int4, DType::kU4), the values are followed by a scale (f32) for each
// head and token of K, then those of V; all of it counts as elements of the cache's type. A row of
// int4 takes whole fours of bytes (int4_row.h).
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

// The types of the rows of K and of V.
struct KvTypes {
  DType key;
  DType value;
};

constexpr KvTypes KvTypesOf(DType cache) {
  if (cache == DType::kK8V4) return {.key = DType::kI8, .value = DType::kU4};
  return {.key = cache, .value = cache};
}

inline bool IsKvDType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kI8 ||
         dtype == DType::kF8E4M3 || dtype == DType::kU4 || dtype == DType::kK8V4;
}
inline constexpr std::string_view kKvDTypeNames = "f32, bf16, f8_e4m3, i8, u4 or k8v4";

// True if each row of K and of V has a scale.
constexpr bool HasKvScales(DType cache) {
  const DType key = KvTypesOf(cache).key;
  return key == DType::kI8 || key == DType::kU4;
}

// True if rows of V, and maybe those of K, are of int4.
constexpr bool HasInt4Rows(DType cache) { return KvTypesOf(cache).value == DType::kU4; }

// Bytes of one head and token of K or of V, of rows of type `row`, without its scale.
inline int64_t KvRowBytes(DType row, int64_t head_dim) {
  return row == DType::kU4 ? (head_dim + 7) / 8 * 4 : head_dim * RowBytes(row, 1);
}

// Elements of one head and token: its key and its value, with their scales.
inline int64_t KvTokenElements(DType cache, int64_t head_dim) {
  const KvTypes types = KvTypesOf(cache);
  int64_t bytes = KvRowBytes(types.key, head_dim) + KvRowBytes(types.value, head_dim);
  if (HasKvScales(cache)) bytes += 2 * static_cast<int64_t>(sizeof(float));
  const DTypeInfo& info = Info(cache);
  return bytes / info.block_bytes * info.block_elements;
}

inline int64_t KvBlockElements(DType cache, const KvHeads& heads, int64_t block_size) {
  return heads.kv_heads * block_size * KvTokenElements(cache, heads.head_dim);
}

// Offset of the values of a block, behind its keys.
inline int64_t KvValuesOffsetBytes(DType cache, const KvHeads& heads, int64_t block_size) {
  return heads.kv_heads * block_size * KvRowBytes(KvTypesOf(cache).key, heads.head_dim);
}

// Offset of the scales of a block, behind its values.
inline int64_t KvScalesOffsetBytes(DType cache, const KvHeads& heads, int64_t block_size) {
  return KvValuesOffsetBytes(cache, heads, block_size) +
         heads.kv_heads * block_size * KvRowBytes(KvTypesOf(cache).value, heads.head_dim);
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_KV_PAGE_H_
