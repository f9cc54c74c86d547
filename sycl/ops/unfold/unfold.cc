#include "cc/ops/unfold/unfold.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/unfold/unfold_params.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const ops::unfold::Windows windows = ops::unfold::WindowsOf(call);
  LaunchItems(context, ActModule(x.dtype), "unfold_kernel", y.shape[0] * y.RowElements(),
              UnfoldParams{.x = RowsOf(x),
                           .y = RowsOf(y),
                           .rows = y.shape[0],
                           .width = y.RowElements(),
                           .positions = windows.positions,
                           .channels = windows.channels,
                           .size = windows.size,
                           .stride = windows.stride,
                           .padding = windows.padding,
                           .group = windows.group,
                           .count = windows.count,
                           .index = windows.index});
}

}  // namespace

const ops::Kernel kUnfold = SyclKernel("unfold", Run);

}  // namespace pagemill::sycl
