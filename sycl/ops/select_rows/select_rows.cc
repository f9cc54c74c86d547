#include "cc/ops/select_rows/select_rows.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/select_rows/select_rows_params.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& rows = call.inputs[1];
  const int64_t width = x.RowElements(), count = call.attributes->GetInt("count", 1);
  LaunchItems(context, ActModule(x.dtype), "select_rows_kernel", rows.shape[0] * count * width,
              SelectRowsParams{.x = RowsOf(x),
                               .rows = rows.Data<const int32_t>(),
                               .y = RowsOf(call.outputs[0]),
                               .x_rows = x.shape[0],
                               .y_rows = rows.shape[0],
                               .width = width,
                               .count = count});
}

}  // namespace

const ops::Kernel kSelectRows = SyclKernel("select_rows", Run);

}  // namespace pagemill::sycl
