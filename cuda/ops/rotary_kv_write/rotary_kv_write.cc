#include "cc/ops/rotary_kv_write/rotary_kv_write.h"

#include <array>

#include "cc/ops/kv_write/kv_write.h"
#include "cc/ops/rotary/rotary.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/kv_write/kv_store.h"
#include "cuda/ops/rotary/rotary_heads.h"

namespace pagemill::gpu {
namespace {

constexpr int64_t kMaxThreads = 256;

template <typename T>
struct TokenRows {
  const T* data;  // q
  int64_t q_stride;
  Rows<const T> k, v;
  Rows<T> q_out, k_out;
};

template <typename T, typename C>
PAGEMILL_KERNEL RotateAndStore(RotaryAngleParams angles, Rows<const int32_t> positions,
                               RotaryHeadParams heads, TokenRows<T> rows, KvStoreParams<C> store,
                               const int32_t* slots) {
  LetNextBegin();
  AwaitInputs();
  const int64_t t = BlockIndex().x;
  RotateToken(angles, positions[t], heads, rows.data + t * rows.q_stride, rows.k[t],
              rows.q_out[t], rows.k_out[t]);
  SyncBlock();
  StoreKvToken(store, slots[t], static_cast<const T*>(rows.k_out[t]), rows.v[t]);
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  constexpr size_t kRotaryInputs = 4;  // then v and the cache
  const ops::RotaryArgs rotary = ops::ToRotaryArgs({.inputs = call.inputs.first(kRotaryInputs),
                                                    .outputs = call.outputs,
                                                    .attributes = call.attributes});
  const std::array<TensorView, 3> kv_inputs = {call.outputs[1], call.inputs[kRotaryInputs],
                                               call.inputs[kRotaryInputs + 1]};
  const ops::KvWriteArgs kv = ops::ToKvWriteArgs(
      {.inputs = kv_inputs, .outputs = {}, .attributes = call.attributes, .batch = call.batch});
  WithActType(rotary.q.dtype, [&]<typename T>(T) {
    const Rows<const T> q = RowsOf<const T>(rotary.q);
    const TokenRows<T> rows = {q.data,
                               q.stride,
                               RowsOf<const T>(rotary.k),
                               RowsOf<const T>(kv.v),
                               RowsOf<T>(rotary.q_out),
                               RowsOf<T>(rotary.k_out)};
    WithCacheType(kv.cache.dtype, [&]<typename C>(C) {
      Launch(*context.stream,
             {.blocks = {static_cast<uint32_t>(rotary.q.shape[0])},
              .threads = {BlockThreads(rotary.q.RowElements() + rotary.k.RowElements(), 4,
                                       kMaxThreads)},
              .early = true},
             RotateAndStore<T, C>, AngleParamsOf(rotary), RowsOf<const int32_t>(rotary.positions),
             RotaryHeadParams{rotary.q.shape[1], rotary.k.shape[1], rotary.q.shape[2]}, rows,
             KvStoreParamsOf<C>(kv), kv.batch->slot_mapping);
    });
  });
}

constexpr ops::Kernel kKernels[] = {{"rotary_kv_write", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> RotaryKvWriteKernels() { return kKernels; }

}  // namespace pagemill::gpu
