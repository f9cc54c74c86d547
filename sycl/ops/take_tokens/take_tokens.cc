#include "cc/ops/take_tokens/take_tokens.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/take_tokens/take_tokens_params.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const int64_t tokens = call.inputs[0].shape[0];
  LaunchItems(context, TokenModule(), "take_tokens_kernel", tokens,
              TakeTokensParams{.ids = call.inputs[0].Data<const int32_t>(),
                               .sampled = call.inputs[1].Data<const int32_t>(),
                               .y = call.outputs[0].Data<int32_t>(),
                               .tokens = tokens});
}

}  // namespace

const ops::Kernel kTakeTokens = SyclKernel("take_tokens", Run);

}  // namespace pagemill::sycl
