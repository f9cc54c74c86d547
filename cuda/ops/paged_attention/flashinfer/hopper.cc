#include "cuda/ops/paged_attention/flashinfer/hopper.h"

#include "cc/ops/paged_attention/paged_attention.h"
#include "cuda/device/gpu_stream.h"
#include "cuda/ops/paged_attention/flashinfer/flashinfer.h"
#include "cuda/ops/paged_attention/flashinfer/hopper_instance.h"
#include "cuda/ops/paged_attention/flashinfer/hopper_instances.h"
#include "cuda/ops/paged_attention/flashinfer/hopper_plan.h"
#include "cuda/ops/paged_attention/flashinfer/plan.h"

namespace pagemill::gpu {
namespace {

struct Instance {
  int32_t head_dim;
  cudaError_t (*run)(const HopperCall& call, cudaStream_t stream);
};

constexpr Instance kInstances[] = {
#define PAGEMILL_INSTANCE(head_dim) {head_dim, RunHopperAttention<head_dim>},
    PAGEMILL_FLASHINFER_HOPPER_INSTANCES(PAGEMILL_INSTANCE)
#undef PAGEMILL_INSTANCE
};

const Instance* FindInstance(int64_t head_dim) {
  for (const Instance& instance : kInstances) {
    if (instance.head_dim == head_dim) return &instance;
  }
  return nullptr;
}

// The plan of prompts is behind that of the other requests.
int64_t PromptsOffset(const FlashInferShape& shape) {
  constexpr int64_t kAlignment = 4;
  return (FlashInferPlanView::Bytes(shape) + kAlignment - 1) / kAlignment * kAlignment;
}

// What is left for plan.h beside prompts.
FlashInferShape OthersOf(FlashInferShape shape) {
  shape.most_tokens = kPromptTokens - 1;
  return shape;
}

}  // namespace

bool SupportsFlashInferHopper(const device::Capabilities& caps, const ops::OpCall& call) {
  return SupportsFlashInfer(caps, call) && caps.gpu.compute_major == 9 &&
         caps.gpu.compute_minor == 0 && FindInstance(call.inputs[0].shape[2]) != nullptr;
}

int64_t FlashInferHopperPlanBytes(const ops::OpCall& call) {
  const FlashInferShape shape = FlashInferShapeOf(ops::ToPagedAttentionArgs(call));
  return PromptsOffset(shape) + HopperPlanView::Bytes(shape);
}

void MakeFlashInferHopperPlan(const ops::OpCall& call, std::span<std::byte> plan) {
  const ops::PagedAttentionArgs args = ops::ToPagedAttentionArgs(call);
  const FlashInferShape shape = FlashInferShapeOf(args);
  if (!MayHavePrompts(shape)) return MakeFlashInferPlan(call, plan);
  if (shape.requests > 1) {
    PlanFlashInfer(OthersOf(shape), args.batch->query_start, args.batch->seq_lens, plan.data());
  }
  PlanHopper(shape, args.batch->query_start, args.batch->seq_lens,
             plan.data() + PromptsOffset(shape));
}

void RunFlashInferHopper(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::PagedAttentionArgs args = ops::ToPagedAttentionArgs(call);
  const FlashInferShape shape = FlashInferShapeOf(args);
  if (!MayHavePrompts(shape)) return RunFlashInfer(call, context);
  // First: it may write rows of prompts, too.
  if (shape.requests > 1) RunFlashInferFor(OthersOf(shape), call, context);
  GpuStream& stream = static_cast<GpuStream&>(*context.stream);
  stream.MakeCurrent();
  stream.Check(FindInstance(shape.head_dim)
                   ->run({.shape = shape,
                          .plan = HopperPlanView::Of(
                              shape, const_cast<std::byte*>(context.plan) + PromptsOffset(shape)),
                          .block_table = args.batch->block_table,
                          .q = args.q.data,
                          .q_stride = Bf16StrideOf(args.q),
                          .cache = args.cache.data,
                          .page_stride = Bf16StrideOf(args.cache),
                          .y = args.y.data,
                          .scale = args.scale},
                         stream.native()));
}

}  // namespace pagemill::gpu
