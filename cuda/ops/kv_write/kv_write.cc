#include "cc/ops/kv_write/kv_write.h"

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/kv_write/kv_store.h"

namespace pagemill::gpu {
namespace {

constexpr int64_t kMaxThreads = 256;

template <typename T, typename C>
PAGEMILL_KERNEL Store(KvStoreParams<C> params, const int32_t* slots, Rows<const T> k,
                      Rows<const T> v) {
  const int64_t t = BlockIndex().x;
  StoreKvToken(params, slots[t], k[t], v[t]);
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::KvWriteArgs args = ops::ToKvWriteArgs(call);
  WithActType(args.k.dtype, [&]<typename T>(T) {
    WithCacheType(args.cache.dtype, [&]<typename C>(C) {
      Launch(*context.stream,
             {.blocks = {static_cast<uint32_t>(args.k.shape[0])}, .threads = {BlockThreads(args.k.RowElements(), 2, kMaxThreads)}},
             Store<T, C>, KvStoreParamsOf<C>(args), args.batch->slot_mapping,
             RowsOf<const T>(args.k), RowsOf<const T>(args.v));
    });
  });
}

constexpr ops::Kernel kKernels[] = {{"kv_write", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> KvWriteKernels() { return kKernels; }

}  // namespace pagemill::gpu
