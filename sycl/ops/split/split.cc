#include "cc/ops/split/split.h"

#include "sycl/ops/split/split_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const int64_t piece = x.shape[static_cast<size_t>(x.rank) - 1];
  const int64_t pieces = x.RowElements() / piece;
  int64_t first = 0;
  for (const TensorView& y : call.outputs) {
    const int64_t part = y.RowElements() / pieces;
    LaunchItems(context, ActModule(x.dtype), "split_kernel", y.shape[0] * y.RowElements(),
                SplitParams{.x = RowsOf(x),
                            .y = RowsOf(y),
                            .rows = y.shape[0],
                            .width = y.RowElements(),
                            .piece = piece,
                            .part = part,
                            .first = first});
    first += part;
  }
}

}  // namespace

const ops::Kernel kSplit = SyclKernel("split", Run);

}  // namespace pagemill::sycl
