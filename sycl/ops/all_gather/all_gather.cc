#include "cc/ops/all_gather/all_gather.h"

#include <algorithm>

#include "sycl/ops/all_gather/all_gather_params.h"
#include "sycl/ops/all_reduce/gather_elements.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

static_assert(kMaxGatheredRanks == kMaxSyclRanks);

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& y = call.outputs[0];
  const RankMemory* const memory = RankMemoryOf(context);
  if (memory == nullptr) return CopyRows(x, y, context);
  AllGatherParams params = {
      .parts = memory->received, .y = RowsOf(y), .rows = x.shape[0], .ranks = memory->num_ranks};
  int64_t widest = 0;
  for (int32_t r = 0; r < memory->num_ranks; ++r) {
    params.begins[r + 1] = ops::GatherBegin(y.RowElements(), r + 1, memory->num_ranks);
    widest = std::max(widest, params.begins[r + 1] - params.begins[r]);
  }
  const int64_t most = memory->most_bytes / RowBytes(x.dtype, 1), all = params.rows * widest;
  for (params.first = 0; params.first < all; params.first += most) {
    params.count = std::min(most, all - params.first);
    GatherElements(x, params.first, params.count, context);
    LaunchItems(context, ActModule(x.dtype), "all_gather_kernel", params.count * params.ranks,
                params);
  }
}

}  // namespace

const ops::Kernel kAllGather = SyclKernel("all_gather", Run, AmongRanks);

}  // namespace pagemill::sycl
