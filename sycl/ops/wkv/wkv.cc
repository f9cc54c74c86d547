#include "cc/ops/wkv/wkv.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/wkv/wkv_params.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::WkvArgs args = ops::ToWkvArgs(call);
  LaunchItems(context, StateModule(args.key.dtype), "wkv_kernel",
              args.batch->num_requests * args.channels,
              WkvParams{.key = RowsOf(args.key),
                        .value = RowsOf(args.value),
                        .y = RowsOf(args.y),
                        .decay = args.decay.Data<const float>(),
                        .first = args.first.Data<const float>(),
                        .states = RowsOf(args.state),
                        .batch = StepTokensOf(*args.batch),
                        .channels = args.channels});
}

}  // namespace

const ops::Kernel kWkv = SyclKernel("wkv", Run);

}  // namespace pagemill::sycl
