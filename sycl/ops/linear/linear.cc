#include "cc/ops/linear/linear.h"

#include <algorithm>

#include "sycl/device/onednn.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/linear/linear_params.h"
#include "sycl/ops/linear/onednn_product.h"
#include "sycl/ops/weights_of.h"

namespace pagemill::sycl {
namespace {

bool Supports(const device::Capabilities&, const ops::OpCall& call) {
  return AreReadable(call.inputs[1]);  // all matrices of a call have one format
}

void MultiplyRows(const TensorView& x, const TensorView& w, const float* bias, const TensorView& y,
                  ops::KernelContext& context) {
  const int64_t n = x.shape[0], m = w.shape[0];
  const int64_t sub_groups = (n + kLinearRows - 1) / kLinearRows * m;
  LaunchGroups(context, ActModule(x.dtype), "linear_kernel",
               (sub_groups * kLanes + kLinearGroupSize - 1) / kLinearGroupSize, kLinearGroupSize,
               LinearParams{.x = RowsOf(x),
                            .w = WeightsOf(w),
                            .y = RowsOf(y),
                            .bias = bias,
                            .f32_result = y.dtype == DType::kF32,
                            .n = n,
                            .m = m,
                            .k = w.shape[1]});
}

// Calls multiply(w, bias, y) for each matrix of a call; a missing bias is null.
template <typename Multiply>
void ForMatrices(const ops::OpCall& call, const Multiply& multiply) {
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    multiply(call.inputs[1 + 2 * i], static_cast<const float*>(DataOf(call, 2 + 2 * i)),
             call.outputs[i]);
  }
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  ForMatrices(call, [&](const TensorView& w, const float* bias, const TensorView& y) {
    MultiplyRows(call.inputs[0], w, bias, y, context);
  });
}

void RunByOnednn(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  ForMatrices(call, [&](const TensorView& w, const float* bias, const TensorView& y) {
    if (!MultiplyByOnednn(x, w, bias, y, context)) MultiplyRows(x, w, bias, y, context);
  });
}

int64_t OnednnBytes(const ops::OpCall& call, int32_t) {
  int64_t most = 0;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    most = std::max(most, OnednnProductBytes(call.inputs[0], call.inputs[1 + 2 * i]));
  }
  return most;
}

// True if weights are rounded to the type of activations.
bool AreRounded(const ops::OpCall& call) {
  const DType x = call.inputs[0].dtype;
  return x != DType::kF32 && call.inputs[1].dtype != x;
}

template <bool kAreRounded>
bool SupportsOnednn(const device::Capabilities& caps, const ops::OpCall& call) {
  return Supports(caps, call) && AreRounded(call) == kAreRounded && OnednnLibrary::Open().ok();
}

constexpr ops::Kernel OnednnKernel(bool (*supports)(const device::Capabilities&,
                                                    const ops::OpCall&),
                                   ops::Precision precision) {
  return {.op = "linear",
          .name = "onednn",
          .priority = 20,
          .supports = supports,
          .run = RunByOnednn,
          .workspace_bytes = OnednnBytes,
          .activations = precision,
          .varies_with_batch = true};
}

constexpr ops::Kernel kKernels[] = {
    OnednnKernel(SupportsOnednn<false>, ops::Precision::kF32),
    OnednnKernel(SupportsOnednn<true>, ops::Precision::kBf16),
    SyclKernel("linear", Run, Supports),
};

}  // namespace

std::span<const ops::Kernel> LinearKernels() { return kKernels; }

}  // namespace pagemill::sycl
