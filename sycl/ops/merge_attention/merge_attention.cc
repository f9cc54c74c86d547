#include "cc/ops/merge_attention/merge_attention.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/merge_attention/merge_attention_params.h"

namespace pagemill::sycl {
namespace {

static_assert(ops::merge_attention::kMaxSets == kMaxAttentionSets);

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::merge_attention::Args args = ops::merge_attention::ToArgs(call);
  MergeAttentionParams params = {.sinks = args.sinks,
                                 .y = RowsOf(args.y),
                                 .rows = args.y.shape[0],
                                 .heads = args.heads(),
                                 .size = args.size()};
  for (size_t set = 0; set < args.sets; ++set) {
    params.x[set] = RowsOf(args.x[set]);
    params.lse[set] = RowsOf(args.lse[set]);
  }
  LaunchItems(context, LatentModule(args.y.dtype), "merge_attention_kernel",
              params.rows * params.heads * params.size, params);
}

}  // namespace

const ops::Kernel kMergeAttention = SyclKernel("merge_attention", Run);

}  // namespace pagemill::sycl
