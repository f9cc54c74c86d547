#include "cc/ops/scatter_rows/scatter_rows.h"

#include "sycl/ops/scatter_rows/scatter_rows_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

void Copy(const TensorView& x, const TensorView& z, const int32_t* rows,
          ops::KernelContext& context) {
  LaunchItems(context, ActModule(x.dtype), "scatter_rows_kernel", x.shape[0] * x.RowElements(),
              ScatterRowsParams{.x = RowsOf(x),
                                .z = RowsOf(z),
                                .rows = rows,
                                .count = x.shape[0],
                                .width = x.RowElements()});
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& z = call.outputs[0];
  if (x.data != z.data) Copy(x, z, /*rows=*/nullptr, context);
  Copy(call.inputs[1], z, call.inputs[2].Data<const int32_t>(), context);
}

}  // namespace

const ops::Kernel kScatterRows = SyclKernel("scatter_rows", Run);

}  // namespace pagemill::sycl
