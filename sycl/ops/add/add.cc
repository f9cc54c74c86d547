#include "cc/ops/add/add.h"

#include "sycl/ops/add/add_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::AddArgs args = ops::ToAddArgs(call);
  const int64_t rows = args.a.shape[0], width = args.a.RowElements();
  const bool shared = args.b.rank == 1;
  LaunchItems(context, ActModule(args.a.dtype), "add_kernel", rows * width,
              AddParams{.a = RowsOf(args.a),
                        .b = RowsOf(args.b),
                        .y = RowsOf(args.y),
                        .shared_row = shared ? args.b.Data<const float>() : nullptr,
                        .rows = rows,
                        .width = width});
}

}  // namespace

const ops::Kernel kAdd = SyclKernel("add", Run);

}  // namespace pagemill::sycl
