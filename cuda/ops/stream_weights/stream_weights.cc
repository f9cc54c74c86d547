#include "cc/ops/stream_weights/stream_weights.h"

#include <string_view>

#include "cuda/gpu_rows.h"
#include "cuda/ops/kernels.h"
#include "cuda/triton/launch.h"

namespace pagemill::gpu {
namespace {

constexpr TritonKernel kKernel = {"stream_weights", "pppppllliiifi"};

std::string_view SpecializationOf(const ops::OpCall& call) {
  return call.outputs[0].shape[1] <= 4 ? "streams_4" : "streams_16";
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return HasImage(caps, kKernel, SpecializationOf(call));
}

int64_t StrideOf(const TensorView& view) {
  return view.row_stride_bytes / static_cast<int64_t>(sizeof(float));
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& mixes = call.inputs[0];
  const TensorView& before = call.outputs[0];
  const bool has_after = call.outputs.size() > 1;
  const TensorView& after = has_after ? call.outputs[1] : before;
  const TritonImage& image = ImageFor(*context.stream, kKernel, SpecializationOf(call));
  LaunchTriton(*context.stream, image, {.x = DivideUp(mixes.shape[0], image.block)}, mixes.data,
               call.inputs[1].data, call.inputs[2].data, before.data, after.data, StrideOf(mixes),
               StrideOf(before), StrideOf(after), static_cast<int32_t>(mixes.shape[0]),
               static_cast<int32_t>(before.shape[1]),
               static_cast<int32_t>(call.attributes->GetInt("iterations", 1)),
               static_cast<float>(call.attributes->Get("eps", 0)),
               static_cast<int32_t>(has_after));
}

constexpr ops::Kernel kKernels[] = {{"stream_weights", "triton", 10, Supports, Run}};

}  // namespace

std::span<const ops::Kernel> StreamWeightsKernels() { return kKernels; }

}  // namespace pagemill::gpu
