#include "cc/ops/moe_route/moe_route.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/moe_route/moe_route_params.h"

namespace pagemill::sycl {
namespace {

namespace moe_route = ops::moe_route;

bool Supports(const device::Capabilities&, const ops::OpCall& call) {
  return moe_route::ToArgs(call).groups <= kMaxExpertGroups;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const moe_route::Args args = moe_route::ToArgs(call);
  const int64_t rows = args.logits.shape[0];
  LaunchItems(context, TokenModule(), "moe_route_kernel", rows,
              MoeRouteParams{.logits = RowsOf(args.logits),
                             .ids = RowsOf(args.ids),
                             .weights = RowsOf(args.weights),
                             .bias = args.bias,
                             .factors = args.factors,
                             .token_ids = args.has_table() ? RowsOf(args.token_ids) : Rows{},
                             .table = args.has_table() ? RowsOf(args.table) : Rows{},
                             .rows = rows,
                             .experts = static_cast<int32_t>(args.experts),
                             .choices = static_cast<int32_t>(args.choices),
                             .has_table = args.has_table(),
                             .sigmoid = args.scoring == moe_route::Scoring::kSigmoid,
                             .sparse_mixer = args.scoring == moe_route::Scoring::kSparseMixer,
                             .sqrt_softplus = args.scoring == moe_route::Scoring::kSqrtSoftplus,
                             .logits_bias = args.logits_bias,
                             .renormalize = args.renormalize,
                             .tolerance = args.tolerance,
                             .scale = args.scale,
                             .groups = static_cast<int32_t>(args.groups),
                             .group_choices = static_cast<int32_t>(args.group_choices),
                             .group_top = static_cast<int32_t>(args.group_top),
                             .first = args.first});
}

}  // namespace

const ops::Kernel kMoeRoute = SyclKernel("moe_route", Run, Supports);

}  // namespace pagemill::sycl
