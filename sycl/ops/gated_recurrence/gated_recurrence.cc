#include "cc/ops/gated_recurrence/gated_recurrence.h"

#include "sycl/ops/gated_recurrence/gated_recurrence_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::GatedRecurrenceArgs args = ops::ToGatedRecurrenceArgs(call);
  LaunchItems(context, StateModule(args.x.dtype), "gated_recurrence_kernel",
              args.batch->num_requests * args.channels,
              GatedRecurrenceParams{.x = RowsOf(args.x),
                                    .gate = RowsOf(args.gate),
                                    .y = RowsOf(args.y),
                                    .rate = args.rate.Data<const float>(),
                                    .states = RowsOf(args.state),
                                    .batch = StepTokensOf(*args.batch),
                                    .channels = args.channels});
}

}  // namespace

const ops::Kernel kGatedRecurrence = SyclKernel("gated_recurrence", Run);

}  // namespace pagemill::sycl
