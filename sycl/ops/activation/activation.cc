#include "cc/ops/activation/activation.h"

#include "sycl/ops/activation/activation_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::ActivationArgs args = ops::ToActivationArgs(call);
  const int64_t rows = args.x.shape[0], width = args.x.RowElements();
  LaunchItems(context, ActModule(args.x.dtype), "activation_kernel", rows * width,
              ActivationParams{.x = RowsOf(args.x),
                               .y = RowsOf(args.y),
                               .kind = args.kind,
                               .limit = args.limit,
                               .lower = args.lower,
                               .rows = rows,
                               .width = width});
}

}  // namespace

const ops::Kernel kActivation = SyclKernel("activation", Run);

}  // namespace pagemill::sycl
