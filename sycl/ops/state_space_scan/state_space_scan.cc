#include "cc/ops/state_space_scan/state_space_scan.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/state_space_scan/state_space_scan_params.h"
#include "sycl/ops/states/state_sizes.h"

namespace pagemill::sycl {
namespace {

bool Supports(const device::Capabilities&, const ops::OpCall& call) {
  return ops::ToStateSpaceScanArgs(call).states <= kMaxStateRows;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::StateSpaceScanArgs args = ops::ToStateSpaceScanArgs(call);
  LaunchItems(context, StateModule(args.xbc.dtype), "state_space_scan_kernel",
              args.batch->num_requests * args.heads * args.head_dim * kLanes,
              StateSpaceScanParams{.xbc = RowsOf(args.xbc),
                                   .dt = RowsOf(args.dt),
                                   .y = RowsOf(args.y),
                                   .a_log = args.a_log.Data<const float>(),
                                   .d = args.d.Data<const float>(),
                                   .dt_bias = args.dt_bias.Data<const float>(),
                                   .state_pages = RowsOf(args.state),
                                   .batch = StepTokensOf(*args.batch),
                                   .heads = static_cast<int32_t>(args.heads),
                                   .head_dim = static_cast<int32_t>(args.head_dim),
                                   .states = static_cast<int32_t>(args.states),
                                   .groups = static_cast<int32_t>(args.groups)});
}

}  // namespace

const ops::Kernel kStateSpaceScan = SyclKernel("state_space_scan", Run, Supports);

}  // namespace pagemill::sycl
