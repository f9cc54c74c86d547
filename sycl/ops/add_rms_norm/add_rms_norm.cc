#include "sycl/ops/add_rms_norm/add_rms_norm.h"

#include "cc/ops/add_rms_norm/add_rms_norm.h"
#include "sycl/ops/add_rms_norm/add_rms_norm_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

constexpr int32_t kGroupSize = 64;  // that of rms_norm, whose bits the norm has

}  // namespace

void RunAddRmsNorm(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::AddRmsNormArgs args = ops::ToAddRmsNormArgs(call);
  LaunchGroups(context, ActModule(args.x.dtype), "add_rms_norm_kernel", args.x.shape[0], kGroupSize,
               AddRmsNormParams{.x = RowsOf(args.x),
                                .residual = RowsOf(args.residual),
                                .y = RowsOf(args.y),
                                .sum = RowsOf(args.sum),
                                .w = args.w.Data<const float>(),
                                .size = args.x.RowElements(),
                                .eps = args.eps,
                                .weight_offset = args.weight_offset});
}

const ops::Kernel kAddRmsNorm = SyclKernel("add_rms_norm", RunAddRmsNorm);

}  // namespace pagemill::sycl
