#include "cc/ops/grouped_linear/grouped_linear.h"

#include "sycl/ops/grouped_linear/grouped_linear_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/weights_of.h"

namespace pagemill::sycl {
namespace {

namespace grouped_linear = ops::grouped_linear;

bool Supports(const device::Capabilities&, const ops::OpCall& call) {
  return AreReadable(call.inputs[grouped_linear::WeightOperand(0)]);
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const TensorView& w = call.inputs[grouped_linear::WeightOperand(i)];
    const TensorView& bias = call.inputs[grouped_linear::BiasOperand(i)];
    const int64_t tokens = x.shape[0], choices = call.inputs[1].shape[1], m = w.shape[1];
    const int64_t items = tokens * choices * m * kLanes;
    LaunchGroups(context, ActModule(x.dtype), "grouped_linear_kernel",
                 (items + kGroupedLinearGroupSize - 1) / kGroupedLinearGroupSize,
                 kGroupedLinearGroupSize,
                 GroupedLinearParams{.x = RowsOf(x),
                                     .x_step = grouped_linear::InputRowsOf(call).step,
                                     .ids = RowsOf(call.inputs[1]),
                                     .w = WeightsOf(w),
                                     .bias = bias.rank == 0 ? Rows{} : RowsOf(bias),
                                     .y = RowsOf(call.outputs[i]),
                                     .tokens = tokens,
                                     .choices = choices,
                                     .experts = w.shape[0],
                                     .m = m,
                                     .k = w.shape[2]});
  }
}

}  // namespace

const ops::Kernel kGroupedLinear = SyclKernel("grouped_linear", Run, Supports);

}  // namespace pagemill::sycl
