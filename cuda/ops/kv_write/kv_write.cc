#include "cc/ops/kv_write/kv_write.h"

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/heads/heads_of_tokens.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/kv_write/kv_store.h"

namespace pagemill::gpu {
namespace {

// Block (token, part of its heads).
template <typename T, typename C>
PAGEMILL_KERNEL Store(KvStoreParams<C> params, const int32_t* slots, Rows<const T> k,
                      Rows<const T> v) {
  const int64_t t = BlockIndex().x;
  const int kv_heads = static_cast<int>(params.kv_heads);
  ForHeadsOfWarp(2 * kv_heads, [&](int row) {
    const int which = row / kv_heads, head = row % kv_heads;
    StoreKvHead(params, slots[t], which, head,
                which == 0 ? k[t] + head * params.head_dim : v[t] + head * params.value_dim);
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::KvWriteArgs args = ops::ToKvWriteArgs(call);
  WithActType(args.k.dtype, [&]<typename T>(T) {
    WithCacheType(args.cache.dtype, [&]<typename C>(C) {
      Launch(*context.stream, HeadsOfTokens(args.k.shape[0], 2 * args.k.shape[1]), Store<T, C>,
             KvStoreParamsOf<C>(args), args.batch->slot_mapping, RowsOf<const T>(args.k),
             RowsOf<const T>(args.v));
    });
  });
}

constexpr ops::Kernel kKernels[] = {{"kv_write", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> KvWriteKernels() { return kKernels; }

}  // namespace pagemill::gpu
