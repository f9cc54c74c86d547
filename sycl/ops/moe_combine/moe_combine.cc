#include "cc/ops/moe_combine/moe_combine.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/moe_combine/moe_combine_params.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& weights = call.inputs[1];
  const TensorView& y = call.outputs[0];
  const int64_t rows = y.shape[0], width = y.RowElements();
  LaunchItems(context, ActModule(x.dtype), "moe_combine_kernel", rows * width,
              MoeCombineParams{.x = RowsOf(x),
                               .weights = RowsOf(weights),
                               .y = RowsOf(y),
                               .rows = rows,
                               .choices = weights.shape[1],
                               .width = width,
                               .step = ops::moe_combine::ChoiceStep(call)});
}

}  // namespace

const ops::Kernel kMoeCombine = SyclKernel("moe_combine", Run);

}  // namespace pagemill::sycl
