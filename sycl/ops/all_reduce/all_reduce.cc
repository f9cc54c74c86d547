// Each rank gets what all have, and adds it in their order: the same bits on all ranks.
#include "sycl/ops/all_reduce/all_reduce.h"

#include <algorithm>

#include "sycl/ops/all_reduce/all_reduce_params.h"
#include "sycl/ops/all_reduce/gather_elements.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {

void RunAllReduce(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& y = call.outputs[0];
  const RankMemory* const memory = RankMemoryOf(context);
  if (memory == nullptr) return CopyRows(x, y, context);
  const int64_t most = memory->most_bytes / RowBytes(x.dtype, 1);
  for (int64_t first = 0; first < x.Elements(); first += most) {
    const int64_t count = std::min(most, x.Elements() - first);
    GatherElements(x, first, count, context);
    LaunchItems(context, ActModule(x.dtype), "all_reduce_kernel", count,
                AllReduceParams{.parts = memory->received,
                                .y = ElementsOf(y, first, count),
                                .ranks = memory->num_ranks});
  }
}

const ops::Kernel kAllReduce = SyclKernel("all_reduce", RunAllReduce, AmongRanks);

}  // namespace pagemill::sycl
