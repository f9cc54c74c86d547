#include "cuda/ops/paged_attention/flashinfer/flashinfer.h"

#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/paged_attention/flashinfer/instances.h"
#include "cuda/ops/paged_attention/flashinfer/paged_attention_instance.h"
#include "cuda/ops/paged_attention/flashinfer/plan.h"

namespace pagemill::gpu {
namespace {

struct Instance {
  int32_t head_dim, tile_rows;
  cudaError_t (*run)(const PagedAttentionCall& call, cudaStream_t stream);
};

constexpr Instance kInstances[] = {
#define PAGEMILL_INSTANCE(head_dim, rows) {head_dim, rows, RunPagedAttention<head_dim, rows>},
    PAGEMILL_FLASHINFER_INSTANCES(PAGEMILL_INSTANCE)
#undef PAGEMILL_INSTANCE
};

const Instance* FindInstance(int64_t head_dim, int32_t tile_rows) {
  for (const Instance& instance : kInstances) {
    if (instance.head_dim == head_dim && instance.tile_rows == tile_rows) return &instance;
  }
  return nullptr;
}

bool HasInstances(int64_t head_dim) {
  return FindInstance(head_dim, 16) != nullptr && FindInstance(head_dim, 64) != nullptr &&
         FindInstance(head_dim, MostTileRows(head_dim)) != nullptr;
}

}  // namespace

int64_t Bf16StrideOf(const TensorView& view) {
  return view.row_stride_bytes / static_cast<int64_t>(sizeof(BFloat16));
}

FlashInferShape FlashInferShapeOf(const ops::PagedAttentionArgs& args) {
  return {.tokens = static_cast<int32_t>(args.q.shape[0]),
          .requests = args.batch->num_requests,
          .q_heads = static_cast<int32_t>(args.q.shape[1]),
          .kv_heads = args.kv_heads,
          .head_dim = static_cast<int32_t>(args.q.shape[2]),
          .block_size = args.batch->block_size,
          .table_stride = static_cast<int32_t>(args.batch->block_table_stride)};
}

bool SupportsFlashInfer(const device::Capabilities& caps, const ops::OpCall& call) {
  const ops::PagedAttentionArgs args = ops::ToPagedAttentionArgs(call);
  const bool plain = args.sinks == nullptr && args.slopes == nullptr && !args.biases.AreThere() &&
                     args.window == 0 && args.causal && !args.encoder_keys && !args.decoder_keys &&
                     !args.item_ends && args.soft_cap == 0 && args.grows_from == 0;
  return OnEveryGpu(caps, call) && HasTensorCores(caps) && plain && args.keys_in_rows &&
         args.q.dtype == DType::kBF16 && args.cache.dtype == DType::kBF16 &&
         args.kv_heads <= kPlannedBlocks && HasInstances(args.q.shape[2]);
}

bool FlashInferReads(const ops::OpCall& call) {
  return HasAlignedRows(call.inputs[0]) && HasAlignedRows(call.inputs[1]) &&
         HasAlignedRows(call.outputs[0]) && call.outputs[0].IsDense() &&
         Bf16StrideOf(call.inputs[1]) <= UINT32_MAX;
}

int64_t FlashInferPlanBytes(const ops::OpCall& call) {
  return FlashInferPlanView::Bytes(FlashInferShapeOf(ops::ToPagedAttentionArgs(call)));
}

void MakeFlashInferPlan(const ops::OpCall& call, std::span<std::byte> plan) {
  const ops::PagedAttentionArgs args = ops::ToPagedAttentionArgs(call);
  PlanFlashInfer(FlashInferShapeOf(args), args.batch->query_start, args.batch->seq_lens,
                 plan.data());
}

// For the shape that has most states: blocks of the largest tiles, just too few to fill the GPU.
int64_t FlashInferStateBytes(const ops::OpCall& call, int32_t) {
  const FlashInferShape shape = FlashInferShapeOf(ops::ToPagedAttentionArgs(call));
  const FlashInferGrid most = {.tile_rows = MostTileRows(shape.head_dim),
                               .blocks = kPlannedBlocks / shape.kv_heads,
                               .splits = true};
  return most.MaxStates(shape) * shape.q_heads *
         (shape.head_dim * static_cast<int64_t>(sizeof(BFloat16)) +
          static_cast<int64_t>(sizeof(float)));
}

void RunFlashInfer(const ops::OpCall& call, ops::KernelContext& context) {
  RunFlashInferFor(FlashInferShapeOf(ops::ToPagedAttentionArgs(call)), call, context);
}

void RunFlashInferFor(const FlashInferShape& shape, const ops::OpCall& call,
                      ops::KernelContext& context) {
  if (shape.tokens == 0) return;
  const ops::PagedAttentionArgs args = ops::ToPagedAttentionArgs(call);
  const FlashInferGrid grid = FlashInferGrid::Of(shape);
  // Blocks without work do not wait for what is in front: some block has to have work.
  const bool has_work = shape.most_tokens == INT32_MAX;
  auto* const scales = reinterpret_cast<float*>(context.workspace.data());
  GpuStream& stream = static_cast<GpuStream&>(*context.stream);
  stream.MakeCurrent();
  stream.Check(FindInstance(shape.head_dim, grid.tile_rows)
                   ->run({.shape = shape,
                          .plan = FlashInferPlanView::Of(
                              shape, const_cast<std::byte*>(context.plan)),
                          .query_start = args.batch->query_start,
                          .block_table = args.batch->block_table,
                          .q = args.q.data,
                          .q_stride = Bf16StrideOf(args.q),
                          .cache = args.cache.data,
                          .page_stride = Bf16StrideOf(args.cache),
                          .y = args.y.data,
                          .states = scales + grid.MaxStates(shape) * shape.q_heads,
                          .scales = scales,
                          .scale = args.scale,
                          .early = has_work && stream.capabilities().compute_major >= 9},
                         stream.native()));
}

}  // namespace pagemill::gpu
