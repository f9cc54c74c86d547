#include "cc/ops/count_tokens/count_tokens.h"

#include "sycl/ops/count_tokens/count_tokens_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& counts = call.inputs[0];
  const TensorView& cleared = call.inputs[1];
  const TensorView& changes = call.inputs[2];
  const CountTokensParams params = {.counts = RowsOf(counts),
                                    .changes = RowsOf(changes),
                                    .cleared = cleared.Data<const int32_t>(),
                                    .ids = call.inputs[3].Data<const int32_t>(),
                                    .num_cleared = cleared.shape[0],
                                    .num_changes = changes.shape[0],
                                    .width = counts.shape[1]};
  LaunchItems(context, TokenModule(), "clear_counts_kernel", cleared.shape[0] * counts.shape[1],
              params);
  LaunchItems(context, TokenModule(), "count_tokens_kernel", changes.shape[0], params);
}

}  // namespace

const ops::Kernel kCountTokens = SyclKernel("count_tokens", Run);

}  // namespace pagemill::sycl
