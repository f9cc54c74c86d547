#include "cuda/ops/latent_attention/tensor_cores.h"

#include <algorithm>

#include "cc/ops/latent_attention/latent_attention.h"
#include "cc/ops/latent_write/latent_cache.h"
#include "cc/ops/paged_attention/paged_attention.h"
#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/attention/activations.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/latent_attention/latent_item.h"
#include "cuda/ops/paged_attention/attention_items.h"

namespace pagemill::gpu {
namespace {

// A state of 512 elements is four times as large as one of 128, so there is a quarter of
// paged_attention's: 34 MB.
constexpr AttentionTiles kLatentTiles = {.few_rows = 1024, .many_rows = kWarpRows, .states = 1024};

constexpr int kFewChunks = 2, kMostChunks = 8;  // of 16 columns, of a warp
constexpr int64_t kMostLatent = LatentItem<kMostChunks>::kWarps * kMostChunks * 16;

// A call of paged_attention with one KV head, whose values are the first elements of its keys.
ops::PagedAttentionArgs ArgsOf(const ops::OpCall& call) {
  return {.q = call.inputs[0],
          .cache = call.inputs[2],
          .y = call.outputs[0],
          .batch = call.batch,
          .kv_heads = 1,
          .scale = static_cast<float>(call.attributes->Get("scale", 1))};
}

int64_t WidthOf(const ops::OpCall& call) {
  return call.inputs[0].shape[2] + call.inputs[1].shape[2];
}

// Block b, for every item from b on.
template <typename Item>
PAGEMILL_KERNEL_OF(Item::kThreads, Item::kBlocks)
AttendItemsOfLatents(AttentionParams params, StepTokens batch, AttentionPlanView plan,
                     Activations q, Activations rope, int rope_size, Rows<const BFloat16> cache,
                     Activations y, SplitStates states) {
  const LatentCall call = {{params, batch, q, y}, rope, rope_size};
  const int32_t num_few = plan.data->num_few, num_items = num_few + plan.data->num_many;
  for (int32_t i = static_cast<int32_t>(BlockIndex().x); i < num_items;
       i += static_cast<int32_t>(GridSize().x)) {
    SyncBlock();  // the item before has been read
    Item(call, cache, i < num_few ? plan.few[i] : plan.many[i - num_few]).Run(states);
  }
}

template <typename Body>
void WithChunks(int64_t latent, const Body& body) {
  if (latent <= LatentItem<kFewChunks>::kWarps * kFewChunks * 16) {
    return body.template operator()<LatentItem<kFewChunks>>();
  }
  body.template operator()<LatentItem<kMostChunks>>();
}

}  // namespace

bool SupportsLatentsOnTensorCores(const device::Capabilities& caps, const ops::OpCall& call) {
  const TensorView& q = call.inputs[0];
  return OnEveryGpu(caps, call) && HasTensorCores(caps) && q.dtype == DType::kBF16 &&
         call.inputs[2].dtype == DType::kBF16 && q.shape[2] % 16 == 0 &&
         q.shape[2] <= kMostLatent && ops::HasInput(call, /*input=*/1) && WidthOf(call) % 16 == 0 &&
         !ops::HasInput(call, /*input=*/3) && call.attributes->GetInt("window", 0) == 0 &&
         call.outputs.size() == 1 && ops::TokensOfRow(call, /*input=*/2) == 1 &&
         LatentItem<kMostChunks>::SharedBytes(WidthOf(call)) <=
             caps.gpu.shared_memory_per_block_bytes;
}

int64_t LatentStateBytes(const ops::OpCall& call, int32_t) {
  return AttentionStateBytes(ArgsOf(call), kLatentTiles);
}

int64_t LatentPlanBytes(const ops::OpCall& call) {
  return AttentionPlanBytes(ArgsOf(call), kLatentTiles);
}

void MakeLatentPlan(const ops::OpCall& call, std::span<std::byte> plan) {
  MakeAttentionPlan(ArgsOf(call), kLatentTiles, plan);
}

void AttendLatentsOnTensorCores(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::PagedAttentionArgs args = ArgsOf(call);
  const int64_t tokens = args.q.shape[0], heads = args.q.shape[1], latent = args.q.shape[2];
  const AttentionCapacity capacity = AttentionCapacity::Of(tokens, heads, 1, kLatentTiles);
  const AttentionPlanView plan = ViewOf(context.plan, capacity);
  const AttentionParams params = ParamsOf(args);
  const StepTokens batch = StepTokensOf(*args.batch);
  const Activations q = ActivationsOf(args.q), rope = ActivationsOf(call.inputs[1]);
  const Activations y = ActivationsOf(args.y);
  const SplitStates states = {reinterpret_cast<float*>(context.workspace.data()), /*kv_heads=*/1,
                              latent};
  const auto grid = [&](int64_t items) {
    return GridSizes{static_cast<uint32_t>(tokens == 0 ? 0 : std::min(items, kMaxItemBlocks))};
  };
  WithChunks(latent, [&]<typename Item>() {
    if constexpr (kHasMma) {
      const LaunchShape shape = {.blocks = grid(capacity.few + capacity.many),
                                 .threads = {Item::kThreads},
                                 .shared_bytes = Item::SharedBytes(WidthOf(call))};
      Launch(*context.stream, shape, AttendItemsOfLatents<Item>, params, batch, plan, q, rope,
             static_cast<int>(call.inputs[1].shape[2]), RowsOf<const BFloat16>(args.cache), y,
             states);
    }
  });
  Launch(*context.stream, {.blocks = grid(capacity.merges), .threads = {kMergeThreads}},
         MergeSplits, params, batch, plan, states, y);
}

}  // namespace pagemill::gpu
