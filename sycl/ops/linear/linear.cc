#include "cc/ops/linear/linear.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/linear/linear_params.h"
#include "sycl/ops/weights_of.h"

namespace pagemill::sycl {
namespace {

bool Supports(const device::Capabilities&, const ops::OpCall& call) {
  return AreReadable(call.inputs[1]);  // all matrices of a call have one format
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const TensorView& w = call.inputs[1 + 2 * i];
    const TensorView& y = call.outputs[i];
    const int64_t n = x.shape[0], m = w.shape[0];
    const int64_t sub_groups = (n + kLinearRows - 1) / kLinearRows * m;
    LaunchGroups(context, ActModule(x.dtype), "linear_kernel",
                 (sub_groups * kLanes + kLinearGroupSize - 1) / kLinearGroupSize, kLinearGroupSize,
                 LinearParams{.x = RowsOf(x),
                              .w = WeightsOf(w),
                              .y = RowsOf(y),
                              .bias = static_cast<const float*>(DataOf(call, 2 + 2 * i)),
                              .f32_result = y.dtype == DType::kF32,
                              .n = n,
                              .m = m,
                              .k = w.shape[1]});
  }
}

}  // namespace

const ops::Kernel kLinear = SyclKernel("linear", Run, Supports);

}  // namespace pagemill::sycl
