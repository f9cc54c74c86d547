// File: cuda/ops/kv_write/kv_store.h
// Storing a token's keys and values by warps, for `kv_write` and the op that also rotates keys.
#ifndef PAGEMILL_CUDA_OPS_KV_WRITE_KV_STORE_H_
#define PAGEMILL_CUDA_OPS_KV_WRITE_KV_STORE_H_

#include <cstdint>
#include <type_traits>

#include "cc/ops/kv_page.h"
#include "cc/ops/kv_write/int4_layout.h"
#include "cc/ops/kv_write/kv_write.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/heads/heads_of_tokens.h"
#include "cuda/ops/kv_write/int4_rows.h"
#include "cuda/ops/kv_write/kv_cache_types.h"

namespace pagemill::gpu {

template <typename C>
struct KvStoreParams {
  C* data;               // the cache
  int64_t block_stride;  // elements from one block to the next
  int64_t block_size;
  int64_t kv_heads, head_dim;
  ops::KeyStrides key;
  int64_t value_dim;      // of values, behind which zeros are stored
  int64_t scales_offset;  // bytes from the beginning of a block; for types with scales
  float inverse_k_scale, inverse_v_scale;
  bool int4_keys;  // of Int4Values
};

template <typename C>
KvStoreParams<C> KvStoreParamsOf(const ops::KvWriteArgs& args) {
  const int64_t kv_heads = args.k.shape[1], head_dim = args.k.shape[2];
  const Rows<C> blocks = RowsOf<C>(args.cache);
  return {blocks.data,
          blocks.stride,
          args.batch->block_size,
          kv_heads,
          head_dim,
          args.key,
          args.v.shape[2],
          ops::KvScalesOffsetBytes(args.cache.dtype, {kv_heads, head_dim}, args.batch->block_size),
          1.0f / args.scales.k,
          1.0f / args.scales.v,
          args.cache.dtype == DType::kU4};
}

// The index in a block of element `d` of a head's key (which = 0) or value (1) at `offset`, of a
// type that is not int4.
template <typename C>
PAGEMILL_DEVICE int64_t KvIndex(const KvStoreParams<C>& p, int which, int64_t head, int64_t d,
                                int64_t offset) {
  return which == 0 ? head * p.head_dim * p.block_size + d * p.key.element + offset * p.key.token
                    : ((p.kv_heads + head) * p.block_size + offset) * p.head_dim + d;
}

// The largest magnitude of a row, of which each lane of a warp adds some elements.
struct RowMagnitude {
  float most = 0;
  bool finite = true;

  PAGEMILL_DEVICE void Add(float x) {
    const float magnitude = fabsf(x);
    finite = finite && magnitude < INFINITY;
    most = fmaxf(most, magnitude);
  }
  PAGEMILL_DEVICE void Combine() {
    most = WarpMax(most);
    finite = Ballot(AllLanes(), finite) == AllLanes();
  }
  // False: all elements are stored as if they were 0.
  PAGEMILL_DEVICE bool HasScale() const { return finite && most >= 1e-30f; }
};

// The scale of a row whose largest magnitude is stored as `largest`.
template <typename C>
PAGEMILL_DEVICE void StoreScale(const KvStoreParams<C>& p, C* block, int which, int64_t head,
                                int64_t offset, const RowMagnitude& row, float largest) {
  constexpr uint32_t kNaN = 0x7fc00000u;
  if (Lane() != 0) return;
  float* const scales =
      reinterpret_cast<float*>(reinterpret_cast<char*>(block) + p.scales_offset);
  scales[(which * p.kv_heads + head) * p.block_size + offset] = row.HasScale() ? row.most / largest
                                                                : row.finite   ? 0.0f
                                                                               : BitsToFloat(kNaN);
}

// A row of int8 and its scale, by a warp.
template <typename T>
PAGEMILL_DEVICE void StoreRow(const KvStoreParams<ScaledInt8>& p, ScaledInt8* block, const T* x,
                              int which, int64_t head, int64_t offset) {
  const int64_t size = which == 0 ? p.head_dim : p.value_dim;
  RowMagnitude row;
  for (int64_t d = Lane(); d < size; d += WarpLanes()) row.Add(ToFloat(x[d]));
  row.Combine();
  const bool any = row.HasScale();
  const float inverse = any ? 127.0f / row.most : 0.0f;
  for (int64_t d = Lane(); d < p.head_dim; d += WarpLanes()) {
    block[KvIndex(p, which, head, d, offset)].value =
        any && d < size ? static_cast<int8_t>(rintf(ToFloat(x[d]) * inverse)) : int8_t{0};
  }
  StoreScale(p, block, which, head, offset, row, 127.0f);
}

// The row [head_dim] of a warp that HeadsOfTokens() launched, in shared memory: x [size], and zeros
// behind it, rotated if it is to be of int4.
template <typename T>
PAGEMILL_DEVICE const float* StagedRow(const T* x, int size, int head_dim, bool is_int4) {
  PAGEMILL_SHARED(float[kHeadsOfBlock * ops::kMaxInt4Dim], rows);
  float* const row = rows + Warp() * ops::kMaxInt4Dim;
  const float factor = is_int4 ? 1.0f / static_cast<float>(ops::Int4Rotation(head_dim)) : 1.0f;
  SyncWarp(AllLanes());  // the row before has been read
  for (int d = Lane(); d < head_dim; d += WarpLanes()) {
    row[d] = d < size ? ToFloat(x[d]) * factor : 0;
  }
  RotateTogether(row, is_int4 ? head_dim : 1, Lane(), WarpLanes(), [] { SyncWarp(AllLanes()); });
  return row;
}

// A row of int4 or int8 and its scale, likewise.
template <typename T>
PAGEMILL_DEVICE void StoreRow(const KvStoreParams<Int4Values>& p, Int4Values* block, const T* x,
                              int which, int64_t head, int64_t offset) {
  const int head_dim = static_cast<int>(p.head_dim), block_size = static_cast<int>(p.block_size);
  const bool is_int4 = which == 1 || p.int4_keys;
  const float* const staged =
      StagedRow(x, which == 0 ? head_dim : static_cast<int>(p.value_dim), head_dim, is_int4);
  RowMagnitude row;
  for (int d = Lane(); d < head_dim; d += WarpLanes()) row.Add(staged[d]);
  row.Combine();
  const float inverse = row.HasScale() ? (is_int4 ? 7.5f : 127.0f) / row.most : 0.0f;
  const float middle = is_int4 ? 7.5f : 0;
  const auto code = [&](int d) {
    if (!row.HasScale() || d >= head_dim) return 0;
    return static_cast<int>(rintf(RoundedProduct(staged[d], inverse) + middle));
  };
  const int row_bytes = is_int4 ? static_cast<int>(Int4RowBytes(head_dim)) : head_dim;
  uint8_t* page = &block[which == 0 ? 0 : Int4ValuesOffset(p)].byte + head * block_size * row_bytes;
  for (int byte = Lane(); byte < row_bytes; byte += WarpLanes()) {
    const int d = is_int4 ? byte / 4 * 8 + byte % 4 : byte;
    const int64_t at = !is_int4     ? int64_t{byte} * block_size + offset
                       : which == 0 ? ops::Int4KeyOffset(byte, offset, block_size)
                                    : ops::Int4ValueOffset(byte, offset, row_bytes);
    page[at] = static_cast<uint8_t>(code(d) | (is_int4 ? code(d + 4) << 4 : 0));
  }
  StoreScale(p, block, which, head, offset, row, is_int4 ? ops::kLargestInt4 : 127.0f);
}

// The key (which = 0) or value (1) of a head at `x`, by a warp. A negative slot stores nothing.
template <typename T, typename C>
PAGEMILL_DEVICE void StoreKvHead(const KvStoreParams<C>& p, int32_t slot, int which, int head,
                                 const T* x) {
  if (slot < 0) return;
  const int block_size = static_cast<int>(p.block_size);
  C* const block = p.data + slot / block_size * p.block_stride;
  const int offset = slot % block_size;
  if constexpr (kHasRowScales<C>) {
    StoreRow(p, block, x, which, head, offset);
  } else {
    const int head_dim = static_cast<int>(p.head_dim);
    const int size = which == 0 ? head_dim : static_cast<int>(p.value_dim);
    const float inverse_scale = which == 0 ? p.inverse_k_scale : p.inverse_v_scale;
    for (int d = Lane(); d < head_dim; d += WarpLanes()) {
      block[KvIndex(p, which, head, d, offset)] =
          ToCache<C>((d < size ? ToFloat(x[d]) : 0) * inverse_scale);
    }
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_KV_WRITE_KV_STORE_H_
