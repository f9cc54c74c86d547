// File: cuda/ops/paged_attention/attention_items.h
// paged_attention by the items of a plan (attention_plan.h), for kernels of tensor cores and of
// matrix cores: the shapes that they take, and their launches.
//
//   struct Items {
//     static constexpr bool kAreInstructions = kHasMma;  // else no kernel is compiled
//     static constexpr int64_t kMaxHeadDim = 256;        // a multiple of 128
//     template <typename C, int kChunks, bool kMany>
//     using Item = AttendItem<C, kChunks, kMany>;
//   };
//   if (FitsItems<Items>(caps, call)) AttendByItems<Items>(call, context);
//
// Blocks of the cache begin at multiples of 16 bytes. The context has a plan, and a workspace of
// PagedAttentionStateBytes().
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTENTION_ITEMS_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTENTION_ITEMS_H_

#include <algorithm>
#include <cstdint>

#include "cc/ops/paged_attention/paged_attention.h"
#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/attention/pieces.h"
#include "cuda/ops/kv_write/kv_cache_types.h"
#include "cuda/ops/paged_attention/attention_plan.h"
#include "cuda/ops/paged_attention/attention_rows.h"
#include "cuda/ops/paged_attention/attention_scores.h"
#include "cuda/ops/paged_attention/split_state.h"

namespace pagemill::gpu {

inline constexpr int kMergeThreads = 128;
inline constexpr int64_t kMaxItemBlocks = 1024;  // of a launch; each takes items in turn

// Block (b, KV head), for every item from b on.
template <typename Item>
PAGEMILL_KERNEL_OF(Item::kThreads, Item::kBlocks)
AttendItems(AttentionParams params, StepTokens batch, AttentionPlanView plan, Activations q,
            Rows<const typename Item::Cache> cache, Activations y, SplitStates states) {
  const AttentionCall call = {params, batch, q, y};
  const AttentionItem* const items = Item::kIsOfMany ? plan.many : plan.few;
  const int32_t num_items = Item::kIsOfMany ? plan.data->num_many : plan.data->num_few;
  for (int32_t i = static_cast<int32_t>(BlockIndex().x); i < num_items;
       i += static_cast<int32_t>(GridSize().x)) {
    SyncBlock();  // the item before has been read
    Item(call, cache, items[i], static_cast<int>(BlockIndex().y)).Run(states);
  }
}

// Block (b, KV head), for every tile from b on.
PAGEMILL_KERNEL MergeSplits(AttentionParams p, StepTokens batch, AttentionPlanView plan,
                            SplitStates states, Activations y) {
  const int head_dim = static_cast<int>(p.head_dim), kv_head = static_cast<int>(BlockIndex().y);
  for (int32_t i = static_cast<int32_t>(BlockIndex().x); i < plan.data->num_merges;
       i += static_cast<int32_t>(GridSize().x)) {
    const MergeItem item = plan.merges[i];
    const RequestRows rows(p, batch, item.request, kv_head);
    for (int e = static_cast<int>(ThreadIndex().x); e < kWarpRows * head_dim; e += kMergeThreads) {
      const int row = e / head_dim, d = e % head_dim;
      const TileRow of = rows.Row(item.first_row + row);
      if (!of.exists) break;
      SoftmaxState total = StateBefore(p, of.head);
      float value = 0;
      for (int32_t split = 0; split < item.num_states; ++split) {
        const float* const state = states.Row(item.first_state + split, kv_head, row);
        const MergeFactors factors = Merge({state[head_dim], state[head_dim + 1]}, &total);
        value = Merged(value, state[d], factors);
      }
      y.Store(of.token, of.head * head_dim + d, Mean(value, total, p));
    }
  }
}

// Calls `body` with the kernel's template arguments: the cache's type, and chunks of 16 elements of
// a head that a warp has registers for.
template <typename Items, typename Body>
void WithItemShape(DType cache, int64_t head_dim, const Body& body) {
  const auto with_chunks = [&]<typename C>() {
    if constexpr (Items::kMaxHeadDim > 128) {
      if (head_dim > 128) return body.template operator()<C, Items::kMaxHeadDim / 16>();
    }
    if (head_dim > 64) return body.template operator()<C, 8>();
    return body.template operator()<C, 4>();
  };
  if (cache == DType::kBF16) return with_chunks.template operator()<BFloat16>();
  return with_chunks.template operator()<Float8>();
}

// Caches in bf16 and f8_e4m3; head_dim a multiple of 16, up to kMaxHeadDim; blocks of a multiple of
// 8 tokens, with keys in columns; and the shared memory.
template <typename Items>
bool FitsItems(const device::Capabilities& caps, const ops::OpCall& call) {
  const DType cache = call.inputs[1].dtype;
  const int64_t head_dim = call.inputs[0].shape[2];
  if (ops::KeysInRows(call) || (cache != DType::kBF16 && cache != DType::kF8E4M3) ||
      head_dim % 16 != 0 || head_dim > Items::kMaxHeadDim || call.batch->block_size % kPiece != 0) {
    return false;
  }
  int64_t shared_bytes = 0;
  WithItemShape<Items>(cache, head_dim, [&]<typename C, int kChunks>() {
    shared_bytes = Items::template Item<C, kChunks, true>::SharedBytes(head_dim);
  });
  return shared_bytes <= caps.gpu.shared_memory_per_block_bytes;
}

template <typename Items>
void AttendByItems(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::PagedAttentionArgs args = ops::ToPagedAttentionArgs(call);
  const int64_t tokens = args.q.shape[0], head_dim = args.q.shape[2];
  const int64_t group = args.q.shape[1] / args.kv_heads;
  const AttentionCapacity capacity = 
      AttentionCapacity::Of(tokens, group, args.kv_heads, kHeadTiles);
  const AttentionPlanView plan = ViewOf(context.plan, capacity);
  const AttentionParams params = ParamsOf(args);
  const StepTokens batch = StepTokensOf(*args.batch);
  const Activations y = ActivationsOf(args.y);
  const SplitStates states = {reinterpret_cast<float*>(context.workspace.data()), args.kv_heads,
                              head_dim};
  const auto grid = [&](int64_t items) {
    const int64_t most = (kMaxItemBlocks + args.kv_heads - 1) / args.kv_heads;
    return GridSizes{static_cast<uint32_t>(tokens == 0 ? 0 : std::min(items, most)),
                     static_cast<uint32_t>(args.kv_heads)};
  };
  WithItemShape<Items>(args.cache.dtype, head_dim, [&]<typename C, int kChunks>() {
    if constexpr (Items::kAreInstructions) {
      const auto launch = [&]<bool kMany>(int64_t items) {
        using Item = typename Items::template Item<C, kChunks, kMany>;
        const LaunchShape shape = {.blocks = grid(items),
                                   .threads = {Item::kThreads},
                                   .shared_bytes = Item::SharedBytes(head_dim)};
        Launch(*context.stream, shape, AttendItems<Item>, params, batch, plan,
               ActivationsOf(args.q), RowsOf<const C>(args.cache), y, states);
      };
      if (tokens * group > kFewRows) launch.template operator()<true>(capacity.many);
      launch.template operator()<false>(capacity.few);
    }
  });
  Launch(*context.stream, {.blocks = grid(capacity.merges), .threads = {kMergeThreads}},
         MergeSplits, params, batch, plan, states, y);
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTENTION_ITEMS_H_
