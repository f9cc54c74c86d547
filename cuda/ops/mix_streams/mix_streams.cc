#include "cc/ops/mix_streams/mix_streams.h"

#include <string_view>

#include "cuda/gpu_rows.h"
#include "cuda/ops/kernels.h"
#include "cuda/triton/launch.h"

namespace pagemill::gpu {
namespace {

constexpr TritonKernel kKernel = {"mix_streams", "pppplllliiii"};

// Elements from one row to the next.
int64_t StrideOf(const TensorView& view) {
  return view.row_stride_bytes / RowBytes(view.dtype, /*elements=*/1);
}

// What the aligned specializations may count on: addresses, strides and widths are multiples of 16.
bool IsAligned(const ops::mix_streams::Args& args) {
  const auto fits = [](const TensorView& view) {
    return HasAlignedRows(view) && StrideOf(view) % 16 == 0;
  };
  return args.width % 16 == 0 && fits(args.x) && fits(args.z) && (args.y.rank == 0 || fits(args.y));
}

std::string_view SpecializationOf(const ops::mix_streams::Args& args) {
  const bool aligned = IsAligned(args);
  switch (args.x.dtype) {
    case DType::kF32: return aligned ? "f32_aligned" : "f32";
    case DType::kBF16: return aligned ? "bf16_aligned" : "bf16";
    default: return aligned ? "f16_aligned" : "f16";
  }
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return HasImage(caps, kKernel, SpecializationOf(ops::mix_streams::ToArgs(call)));
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::mix_streams::Args args = ops::mix_streams::ToArgs(call);
  const bool joins = args.y.rank > 0;
  const TensorView& y = joins ? args.y : args.x;
  const TritonImage& image = ImageFor(*context.stream, kKernel, SpecializationOf(args));
  LaunchTriton(*context.stream, image,
               {.x = static_cast<uint32_t>(args.z.shape[0]), .y = DivideUp(args.width, image.block)},
               args.x.data, args.weights.data, y.data, args.z.data, StrideOf(args.x),
               StrideOf(args.weights), StrideOf(y), StrideOf(args.z),
               static_cast<int32_t>(args.width), static_cast<int32_t>(args.streams),
               static_cast<int32_t>(args.mixes), static_cast<int32_t>(joins));
}

constexpr ops::Kernel kKernels[] = {{"mix_streams", "triton", 10, Supports, Run}};

}  // namespace

std::span<const ops::Kernel> MixStreamsKernels() { return kKernels; }

}  // namespace pagemill::gpu
