#include "cc/ops/scale/scale.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/scale/scale_params.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::ScaleArgs args = ops::ToScaleArgs(call);
  const int64_t rows = args.x.shape[0], width = args.x.RowElements();
  const bool in_groups = args.group_factors.rank > 0;
  // Factors of columns are one row for all.
  const Rows factors = in_groups ? RowsOf(args.group_factors)
                                 : Rows{.data = const_cast<float*>(args.factors)};
  LaunchItems(context, ActModule(args.x.dtype), "scale_kernel", rows * width,
              ScaleParams{.x = RowsOf(args.x),
                          .y = RowsOf(args.y),
                          .factors = factors,
                          .rows = rows,
                          .width = width,
                          .group = in_groups ? width / args.group_factors.shape[1] : 1,
                          .by = static_cast<float>(args.by)});
}

// Not factors that grow with positions: they are computed in double, which many GPUs lack.
bool Supports(const device::Capabilities&, const ops::OpCall& call) {
  return call.inputs.size() == 1 || call.inputs[1].dtype == DType::kF32;
}

}  // namespace

const ops::Kernel kScale = SyclKernel("scale", Run, Supports);

}  // namespace pagemill::sycl
