// File: cuda/ops/kv_write/kv_store.h
// Storing a token's keys and values by warps, for `kv_write` and the op that also rotates keys.
#ifndef PAGEMILL_CUDA_OPS_KV_WRITE_KV_STORE_H_
#define PAGEMILL_CUDA_OPS_KV_WRITE_KV_STORE_H_

#include <cstdint>
#include <type_traits>

#include "cc/ops/kv_page.h"
#include "cc/ops/kv_write/kv_write.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
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
  int64_t scales_offset;  // bytes from the beginning of a block; for ScaledInt8
  float inverse_k_scale, inverse_v_scale;
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
          1.0f / args.scales.v};
}

// The index in a block of element `d` of a head's key (which = 0) or value (1) at `offset`.
template <typename C>
PAGEMILL_DEVICE int64_t KvIndex(const KvStoreParams<C>& p, int which, int64_t head, int64_t d,
                                int64_t offset) {
  return which == 0 ? head * p.head_dim * p.block_size + d * p.key.element + offset * p.key.token
                    : ((p.kv_heads + head) * p.block_size + offset) * p.head_dim + d;
}

// A row of int8 and its scale, by a warp.
template <typename T>
PAGEMILL_DEVICE void StoreScaledRow(const KvStoreParams<ScaledInt8>& p, ScaledInt8* block,
                                    const T* x, int which, int64_t head, int64_t offset) {
  constexpr uint32_t kNaN = 0x7fc00000u;
  const int64_t size = which == 0 ? p.head_dim : p.value_dim;
  float most = 0;
  bool finite = true;
  for (int64_t d = Lane(); d < size; d += WarpLanes()) {
    const float magnitude = fabsf(ToFloat(x[d]));
    finite = finite && magnitude < INFINITY;
    most = fmaxf(most, magnitude);
  }
  most = WarpMax(most);
  finite = Ballot(AllLanes(), finite) == AllLanes();
  const bool any = finite && most >= 1e-30f;
  const float inverse = any ? 127.0f / most : 0.0f;
  for (int64_t d = Lane(); d < p.head_dim; d += WarpLanes()) {
    block[KvIndex(p, which, head, d, offset)].value =
        any && d < size ? static_cast<int8_t>(rintf(ToFloat(x[d]) * inverse)) : int8_t{0};
  }
  if (Lane() != 0) return;
  const int64_t row = (which * p.kv_heads + head) * p.block_size + offset;
  float* const scales =
      reinterpret_cast<float*>(reinterpret_cast<char*>(block) + p.scales_offset);
  scales[row] = any ? most / 127.0f : finite ? 0.0f : BitsToFloat(kNaN);
}

// The key (which = 0) or value (1) of a head at `x`, by a warp. A negative slot stores nothing.
template <typename T, typename C>
PAGEMILL_DEVICE void StoreKvHead(const KvStoreParams<C>& p, int32_t slot, int which, int head,
                                 const T* x) {
  if (slot < 0) return;
  const int block_size = static_cast<int>(p.block_size);
  C* const block = p.data + slot / block_size * p.block_stride;
  const int offset = slot % block_size;
  if constexpr (std::is_same_v<C, ScaledInt8>) {
    StoreScaledRow(p, block, x, which, head, offset);
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
