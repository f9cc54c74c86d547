#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

constexpr uint32_t kThreads = 128;

PAGEMILL_KERNEL Take(const int32_t* ids, const int32_t* sampled, int32_t* y, int64_t num_tokens) {
  const int64_t t = static_cast<int64_t>(BlockIndex().x) * kThreads + ThreadIndex().x;
  if (t >= num_tokens) return;
  const int32_t id = ids[t];
  const int32_t token = id >= 0 ? id : sampled[-1 - id];
  y[t] = token > 0 ? token : 0;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const int64_t num_tokens = call.inputs[0].shape[0];
  Launch(*context.stream, {.blocks = {DivideUp(num_tokens, kThreads)}, .threads = {kThreads}}, Take,
         call.inputs[0].Data<const int32_t>(), call.inputs[1].Data<const int32_t>(),
         call.outputs[0].Data<int32_t>(), num_tokens);
}

constexpr ops::Kernel kKernels[] = {{"take_tokens", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> TakeTokensKernels() { return kKernels; }

}  // namespace pagemill::gpu
