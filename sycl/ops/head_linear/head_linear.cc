#include "cc/ops/head_linear/head_linear.h"

#include "sycl/ops/head_linear/head_linear_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/linear/linear_params.h"  // kLinearRows
#include "sycl/ops/weights_of.h"

namespace pagemill::sycl {
namespace {

bool Supports(const device::Capabilities&, const ops::OpCall& call) {
  return AreReadable(call.inputs[1]);
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& y = call.outputs[0];
  const HeadLinearParams params = {.x = RowsOf(x),
                                   .w = WeightsOf(call.inputs[1]),
                                   .y = RowsOf(y),
                                   .f32_result = y.dtype == DType::kF32,
                                   .n = x.shape[0],
                                   .heads = x.shape[1],
                                   .m = y.shape[2],
                                   .k = x.shape[2]};
  const int64_t products = (params.n + kLinearRows - 1) / kLinearRows * params.heads * params.m;
  const KernelModule& module = LatentModule(x.dtype);
  if (call.attributes->GetInt("transposed", 0) != 0) {
    LaunchItems(context, module, "head_linear_transposed_kernel", products, params);
  } else {
    LaunchItems(context, module, "head_linear_kernel", products * kLanes, params);
  }
}

}  // namespace

const ops::Kernel kHeadLinear = SyclKernel("head_linear", Run, Supports);

}  // namespace pagemill::sycl
