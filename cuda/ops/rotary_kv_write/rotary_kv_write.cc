#include "cc/ops/rotary_kv_write/rotary_kv_write.h"

#include <array>
#include <type_traits>

#include "cc/ops/kv_page.h"
#include "cc/ops/kv_write/kv_write.h"
#include "cc/ops/rotary/rotary.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/heads/heads_of_tokens.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/kv_write/kv_store.h"
#include "cuda/ops/rotary/rotary_heads.h"

namespace pagemill::gpu {
namespace {

template <typename T>
struct TokenRows {
  const T* data;  // q
  int64_t q_stride;
  Rows<const T> k, v;
  Rows<T> q_out, k_out;
};

// Block (token, part of its heads: those of q, of k, and of v).
template <typename T, typename C>
PAGEMILL_KERNEL RotateAndStore(RotaryAngleParams angles, Rows<const int32_t> positions,
                               RotaryHeadParams heads, TokenRows<T> rows, KvStoreParams<C> store,
                               const int32_t* slots) {
  LetNextBegin();
  AwaitInputs();
  const int64_t t = BlockIndex().x;
  const TokenAngles token = AnglesOf(angles, positions[t]);
  ForHeadsOfWarp(heads.q_heads + 2 * heads.k_heads, [&](int head) {
    if (head < heads.q_heads) {
      const int64_t offset = int64_t{head} * heads.head_dim;
      RotateHead(angles, token, heads.head_dim, rows.data + t * rows.q_stride + offset,
                 rows.q_out[t] + offset);
      return;
    }
    head -= heads.q_heads;
    if (head < heads.k_heads) {
      const int64_t offset = int64_t{head} * heads.head_dim;
      T* const rotated = rows.k_out[t] + offset;
      RotateHead(angles, token, heads.head_dim, rows.k[t] + offset, rotated);
      SyncWarp(AllLanes());
      StoreKvHead(store, slots[t], /*which=*/0, head, static_cast<const T*>(rotated));
      return;
    }
    head -= heads.k_heads;
    StoreKvHead(store, slots[t], /*which=*/1, head, rows.v[t] + head * store.value_dim);
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  constexpr size_t kRotaryInputs = 4;  // then v and the cache
  const ops::OpCall rotary_part = {.inputs = call.inputs.first(kRotaryInputs),
                                   .outputs = call.outputs,
                                   .attributes = call.attributes};
  const std::array<TensorView, 3> kv_inputs = {call.outputs[1], call.inputs[kRotaryInputs],
                                               call.inputs[kRotaryInputs + 1]};
  const ops::OpCall kv_part = {
      .inputs = kv_inputs, .outputs = {}, .attributes = call.attributes, .batch = call.batch};
  const ops::KvWriteArgs kv = ops::ToKvWriteArgs(kv_part);
  if (ops::HasInt4Rows(kv.cache.dtype)) {  // a launch more, instead of a copy of much code
    RotaryKernels().front().run(rotary_part, context);
    KvWriteKernels().front().run(kv_part, context);
    return;
  }
  const ops::RotaryArgs rotary = ops::ToRotaryArgs(rotary_part);
  WithActType(rotary.q.dtype, [&]<typename T>(T) {
    const Rows<const T> q = RowsOf<const T>(rotary.q);
    const TokenRows<T> rows = {q.data,
                               q.stride,
                               RowsOf<const T>(rotary.k),
                               RowsOf<const T>(kv.v),
                               RowsOf<T>(rotary.q_out),
                               RowsOf<T>(rotary.k_out)};
    WithCacheType(kv.cache.dtype, [&]<typename C>(C) {
      if constexpr (!std::is_same_v<C, Int4Values>) {
        LaunchShape shape =
            HeadsOfTokens(rotary.q.shape[0], rotary.q.shape[1] + 2 * rotary.k.shape[1]);
        shape.early = true;
        Launch(*context.stream, shape, RotateAndStore<T, C>, AngleParamsOf(rotary),
               RowsOf<const int32_t>(rotary.positions), RotaryHeadParams::Of(rotary), rows,
               KvStoreParamsOf<C>(kv), kv.batch->slot_mapping);
      }
    });
  });
}

constexpr ops::Kernel kKernels[] = {{"rotary_kv_write", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> RotaryKvWriteKernels() { return kKernels; }

}  // namespace pagemill::gpu
