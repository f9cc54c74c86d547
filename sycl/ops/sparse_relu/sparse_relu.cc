#include "cc/ops/sparse_relu/sparse_relu.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/sparse_relu/sparse_relu_params.h"

namespace pagemill::sycl {
namespace {

constexpr int32_t kGroupSize = 128;

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::SparseReluArgs args = ops::ToSparseReluArgs(call);
  LaunchGroups(context, ActModule(args.x.dtype), "sparse_relu_kernel", args.x.shape[0], kGroupSize,
               SparseReluParams{.x = RowsOf(args.x),
                                .y = RowsOf(args.y),
                                .width = args.x.RowElements(),
                                .deviations = static_cast<float>(args.deviations)});
}

}  // namespace

const ops::Kernel kSparseRelu = SyclKernel("sparse_relu", Run);

}  // namespace pagemill::sycl
