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
#include "cuda/ops/latent_write/latent_pages.h"
#include "cuda/ops/paged_attention/attention_items.h"

namespace pagemill::gpu {
namespace {

// A state of 512 elements is four times as large as one of 128, so there is a quarter of
// paged_attention's: 34 MB.
constexpr AttentionTiles kLatentTiles = {.few_rows = 1024, .many_rows = kWarpRows, .states = 1024};

constexpr int kFewChunks = 2, kMostChunks = 8;  // of 16 columns, of a warp
constexpr int64_t kMostLatent = kLatentThreads / 32 * kMostChunks * 16;

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
                     Activations q, Activations rope, int rope_size, typename Item::Pages pages,
                     Activations y, SplitStates states) {
  const LatentCall call = {{params, batch, q, y}, rope, rope_size};
  const int32_t num_few = plan.data->num_few, num_items = num_few + plan.data->num_many;
  for (int32_t i = static_cast<int32_t>(BlockIndex().x); i < num_items;
       i += static_cast<int32_t>(GridSize().x)) {
    SyncBlock();  // the item before has been read
    Item(call, pages, i < num_few ? plan.few[i] : plan.many[i - num_few]).Run(states);
  }
}

// Calls `body` with the pages of the cache, in bf16 or fp8, and as a template argument the item.
template <typename Body>
void WithItem(const ops::OpCall& call, const Body& body) {
  const TensorView& cache = call.inputs[2];
  const int64_t width = WidthOf(call);
  const auto with_pages = [&]<typename Pages>(const Pages& pages) {
    if (call.inputs[0].shape[2] <= kLatentThreads / 32 * kFewChunks * 16) {
      return body.template operator()<LatentItem<Pages, kFewChunks>>(pages);
    }
    return body.template operator()<LatentItem<Pages, kMostChunks>>(pages);
  };
  if (cache.dtype == DType::kF8E4M3) return with_pages(LatentF8PagesOf(call, cache, width));
  return with_pages(LatentPages<BFloat16>{RowsOf<BFloat16>(cache), width});
}

bool FitsSharedMemory(const device::Capabilities& caps, const ops::OpCall& call) {
  bool fits = false;
  WithItem(call, [&]<typename Item>(const typename Item::Pages& pages) {
    fits = Item::SharedBytes(pages, WidthOf(call)) <= caps.gpu.shared_memory_per_block_bytes;
  });
  return fits;
}

// Rows of which pieces are copied: parts of whole ones.
bool HasRowsOfPieces(const ops::OpCall& call) {
  const DType dtype = call.inputs[2].dtype;
  if (dtype == DType::kF8E4M3) return ops::LatentF8RowOf(call, WidthOf(call)).rest % kPiece == 0;
  return dtype == DType::kBF16;
}

}  // namespace

bool SupportsLatentsOnTensorCores(const device::Capabilities& caps, const ops::OpCall& call) {
  const TensorView& q = call.inputs[0];
  return OnEveryGpu(caps, call) && HasTensorCores(caps) && q.dtype == DType::kBF16 &&
         q.shape[2] % 16 == 0 && q.shape[2] <= kMostLatent && ops::HasInput(call, /*input=*/1) &&
         WidthOf(call) % 16 == 0 && HasRowsOfPieces(call) && !ops::HasInput(call, /*input=*/3) &&
         call.attributes->GetInt("window", 0) == 0 && call.outputs.size() == 1 &&
         ops::TokensOfRow(call, /*input=*/2) == 1 && FitsSharedMemory(caps, call);
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
  WithItem(call, [&]<typename Item>(const typename Item::Pages& pages) {
    if constexpr (kHasMma) {
      const LaunchShape shape = {.blocks = grid(capacity.few + capacity.many),
                                 .threads = {Item::kThreads},
                                 .shared_bytes = Item::SharedBytes(pages, WidthOf(call))};
      Launch(*context.stream, shape, AttendItemsOfLatents<Item>, params, batch, plan, q, rope,
             static_cast<int>(call.inputs[1].shape[2]), pages, y, states);
    }
  });
  Launch(*context.stream, {.blocks = grid(capacity.merges), .threads = {kMergeThreads}},
         MergeSplits, params, batch, plan, states, y);
}

}  // namespace pagemill::gpu
