#include "cc/ops/gated_delta/gated_delta.h"

#include "sycl/ops/gated_delta/gated_delta_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/states/state_sizes.h"

namespace pagemill::sycl {
namespace {

bool Supports(const device::Capabilities&, const ops::OpCall& call) {
  return ops::ToGatedDeltaArgs(call).keys <= kMaxStateRows;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::GatedDeltaArgs args = ops::ToGatedDeltaArgs(call);
  LaunchItems(context, StateModule(args.qkv.dtype), "gated_delta_kernel",
              args.batch->num_requests * args.heads * args.values * kLanes,
              GatedDeltaParams{.qkv = RowsOf(args.qkv),
                               .b = RowsOf(args.b),
                               .a = RowsOf(args.a),
                               .y = RowsOf(args.y),
                               .a_log = args.a_log.Data<const float>(),
                               .dt_bias = args.dt_bias.Data<const float>(),
                               .state_pages = RowsOf(args.state),
                               .batch = StepTokensOf(*args.batch),
                               .heads = static_cast<int32_t>(args.heads),
                               .groups = static_cast<int32_t>(args.groups),
                               .keys = static_cast<int32_t>(args.keys),
                               .values = static_cast<int32_t>(args.values),
                               .rates = static_cast<int32_t>(args.rates),
                               .by_group = args.by_group,
                               .in_turn = args.in_turn,
                               .share_scale = args.share_scale,
                               .norm_eps = ops::kDeltaNormEps});
}

}  // namespace

const ops::Kernel kGatedDelta = SyclKernel("gated_delta", Run, Supports);

}  // namespace pagemill::sycl
