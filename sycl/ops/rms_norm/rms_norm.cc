#include "cc/ops/rms_norm/rms_norm.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/rms_norm/rms_norm_params.h"

namespace pagemill::sycl {
namespace {

constexpr int32_t kGroupSize = 64;

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::RmsNormArgs args = ops::ToRmsNormArgs(call);
  const int64_t size = args.size(), groups = args.x.RowElements() / size;
  LaunchGroups(context, ActModule(args.x.dtype), "rms_norm_kernel", args.x.shape[0] * groups,
               kGroupSize,
               RmsNormParams{.x = RowsOf(args.x),
                             .y = RowsOf(args.y),
                             .w = args.w.Data<const float>(),
                             .groups = groups,
                             .size = size,
                             .weight_step = args.w.shape[0] == size ? 0 : size,
                             .eps = args.eps,
                             .weight_offset = args.weight_offset});
}

}  // namespace

const ops::Kernel kRmsNorm = SyclKernel("rms_norm", Run);

}  // namespace pagemill::sycl
