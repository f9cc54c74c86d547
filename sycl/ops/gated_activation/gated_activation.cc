#include "cc/ops/gated_activation/gated_activation.h"

#include "sycl/ops/gated_activation/gated_activation_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::GatedActivationArgs args = ops::ToGatedActivationArgs(call);
  const int64_t rows = args.gate.shape[0], width = args.gate.RowElements();
  LaunchItems(context, ActModule(args.gate.dtype), "gated_activation_kernel", rows * width,
              GatedActivationParams{.gate = RowsOf(args.gate),
                                    .up = RowsOf(args.up),
                                    .y = RowsOf(args.y),
                                    .kind = args.kind,
                                    .limit = args.limit,
                                    .up_offset = args.up_offset,
                                    .rows = rows,
                                    .width = width});
}

}  // namespace

const ops::Kernel kGatedActivation = SyclKernel("gated_activation", Run);

}  // namespace pagemill::sycl
