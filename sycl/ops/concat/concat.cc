#include "cc/ops/concat/concat.h"

#include "sycl/ops/concat/concat_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  int64_t first = 0;
  for (const TensorView& x : call.inputs) {
    const int64_t width = x.RowElements();
    LaunchItems(context, ActModule(x.dtype), "concat_kernel", x.shape[0] * width,
                ConcatParams{.x = RowsOf(x),
                             .y = RowsOf(call.outputs[0]),
                             .rows = x.shape[0],
                             .width = width,
                             .first = first});
    first += width;
  }
}

}  // namespace

const ops::Kernel kConcat = SyclKernel("concat", Run);

}  // namespace pagemill::sycl
