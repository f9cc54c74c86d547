#include "cuda/ops/paged_attention/tensor_cores.h"

#include <algorithm>

#include "cc/ops/paged_attention/paged_attention.h"
#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/paged_attention/attend_item.h"
#include "cuda/ops/paged_attention/attention_plan.h"
#include "cuda/ops/paged_attention/attention_scores.h"
#include "cuda/ops/paged_attention/split_state.h"

namespace pagemill::gpu {
namespace {

constexpr int kMaxHeadDim = 128;
constexpr int kMergeThreads = 128;
constexpr int64_t kMaxBlocks = 1024;  // of a launch; each takes items in turn

Activations ActivationsOf(const TensorView& view) {
  return {view.data, view.row_stride_bytes / Info(view.dtype).block_bytes, view.dtype};
}

// Block (b, KV head), for every item from b on.
template <typename C, int kChunks, bool kMany>
PAGEMILL_KERNEL_OF((AttendItem<C, kChunks, kMany>::kThreads), 1)
AttendItems(AttentionParams params, StepTokens batch, AttentionPlanView plan, Activations q,
            Rows<const C> cache, Activations y, SplitStates states) {
  const AttentionCall call = {params, batch, q, y};
  const AttentionItem* const items = kMany ? plan.many : plan.few;
  const int32_t num_items = kMany ? plan.data->num_many : plan.data->num_few;
  for (int32_t i = static_cast<int32_t>(BlockIndex().x); i < num_items;
       i += static_cast<int32_t>(GridSize().x)) {
    SyncBlock();  // the item before has been read
    AttendItem<C, kChunks, kMany>(call, cache, items[i],
                                  static_cast<int>(BlockIndex().y))
        .Run(states);
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
template <typename Body>
void WithShape(DType cache, int64_t head_dim, const Body& body) {
  const auto with_chunks = [&]<typename C>() {
    if (head_dim <= 64) return body.template operator()<C, 4>();
    return body.template operator()<C, kMaxHeadDim / 16>();
  };
  if (cache == DType::kBF16) return with_chunks.template operator()<BFloat16>();
  return with_chunks.template operator()<Float8>();
}

}  // namespace

bool SupportsAttentionOnTensorCores(const device::Capabilities& caps, const ops::OpCall& call) {
  const DType cache = call.inputs[1].dtype;
  const int64_t head_dim = call.inputs[0].shape[2];
  if (!OnEveryGpu(caps, call) || !HasTensorCores(caps) || ops::KeysInRows(call) ||
      (cache != DType::kBF16 && cache != DType::kF8E4M3) || head_dim % 16 != 0 ||
      head_dim > kMaxHeadDim || call.batch->block_size % kPiece != 0) {
    return false;
  }
  int64_t shared_bytes = 0;
  WithShape(cache, head_dim, [&]<typename C, int kChunks>() {
    shared_bytes = AttendItem<C, kChunks, true>::SharedBytes(head_dim);
  });
  return shared_bytes <= caps.gpu.shared_memory_per_block_bytes;
}

int64_t AttentionStateBytes(const ops::OpCall& call, int32_t) {
  const ops::PagedAttentionArgs args = ops::ToPagedAttentionArgs(call);
  const int64_t states = AttentionCapacity::Of(1, 1, args.kv_heads).states * args.kv_heads;
  return states * kWarpRows * (args.q.shape[2] + 2) * static_cast<int64_t>(sizeof(float));
}

void AttendOnTensorCores(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::PagedAttentionArgs args = ops::ToPagedAttentionArgs(call);
  const int64_t tokens = args.q.shape[0], head_dim = args.q.shape[2];
  const int64_t group = args.q.shape[1] / args.kv_heads;
  const AttentionCapacity capacity = AttentionCapacity::Of(tokens, group, args.kv_heads);
  const AttentionPlanView plan = ViewOf(context.plan, capacity);
  const AttentionParams params = ParamsOf(args);
  const StepTokens batch = StepTokensOf(*args.batch);
  const Activations y = ActivationsOf(args.y);
  const SplitStates states = {reinterpret_cast<float*>(context.workspace.data()), args.kv_heads,
                              head_dim};
  const auto grid = [&](int64_t items) {
    const int64_t most = (kMaxBlocks + args.kv_heads - 1) / args.kv_heads;
    return GridSizes{static_cast<uint32_t>(tokens == 0 ? 0 : std::min(items, most)),
                     static_cast<uint32_t>(args.kv_heads)};
  };
  WithShape(args.cache.dtype, head_dim, [&]<typename C, int kChunks>() {
    const auto launch = [&]<bool kMany>(int64_t items) {
      using Item = AttendItem<C, kChunks, kMany>;
      const LaunchShape shape = {.blocks = grid(items),
                                 .threads = {Item::kThreads},
                                 .shared_bytes = Item::SharedBytes(head_dim)};
      Launch(*context.stream, shape, AttendItems<C, kChunks, kMany>, params, batch, plan,
             ActivationsOf(args.q), RowsOf<const C>(args.cache), y, states);
    };
    if (tokens * group > kFewRows) launch.template operator()<true>(capacity.many);
    launch.template operator()<false>(capacity.few);
  });
  Launch(*context.stream, {.blocks = grid(capacity.merges), .threads = {kMergeThreads}},
         MergeSplits, params, batch, plan, states, y);
}

}  // namespace pagemill::gpu
