#include "cc/ops/layer_norm/layer_norm.h"

#include "sycl/ops/layer_norm/layer_norm_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

constexpr int32_t kGroupSize = 64;

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::LayerNormArgs args = ops::ToLayerNormArgs(call);
  const int64_t size = args.size(), groups = args.x.RowElements() / size;
  LaunchGroups(context, ActModule(args.x.dtype), "layer_norm_kernel", args.x.shape[0] * groups,
               kGroupSize,
               LayerNormParams{.x = RowsOf(args.x),
                               .y = RowsOf(args.y),
                               .w = args.w.Data<const float>(),
                               .b = args.b.Data<const float>(),
                               .groups = groups,
                               .size = size,
                               .parameter_step = args.ParametersOf(1),
                               .eps = args.eps,
                               .weight_offset = args.weight_offset});
}

}  // namespace

const ops::Kernel kLayerNorm = SyclKernel("layer_norm", Run);

}  // namespace pagemill::sycl
