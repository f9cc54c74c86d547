#include "cc/ops/selective_scan/selective_scan.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/selective_scan/selective_scan_params.h"
#include "sycl/ops/states/state_sizes.h"

namespace pagemill::sycl {
namespace {

bool Supports(const device::Capabilities&, const ops::OpCall& call) {
  return ops::ToSelectiveScanArgs(call).states <= kMaxStateRows;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::SelectiveScanArgs args = ops::ToSelectiveScanArgs(call);
  LaunchItems(context, StateModule(args.x.dtype), "selective_scan_kernel",
              args.batch->num_requests * args.channels * kLanes,
              SelectiveScanParams{.x = RowsOf(args.x),
                                  .dt = RowsOf(args.dt),
                                  .y = RowsOf(args.y),
                                  .b = RowsOf(args.b),
                                  .c = RowsOf(args.c),
                                  .a_log = RowsOf(args.a_log),
                                  .d = args.d.Data<const float>(),
                                  .dt_bias = args.dt_bias.Data<const float>(),
                                  .state_pages = RowsOf(args.state),
                                  .batch = StepTokensOf(*args.batch),
                                  .states = static_cast<int32_t>(args.states),
                                  .channels = args.channels});
}

}  // namespace

const ops::Kernel kSelectiveScan = SyclKernel("selective_scan", Run, Supports);

}  // namespace pagemill::sycl
