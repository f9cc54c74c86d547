#include "cc/ops/score_tokens/score_tokens.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/score_tokens/score_tokens_params.h"

namespace pagemill::sycl {
namespace {

constexpr int32_t kGroupSize = 256;
constexpr int64_t kMaxWidth = int64_t{1} << 23;  // sums of exponentials fit in 64 bits

bool Supports(const device::Capabilities&, const ops::OpCall& call) {
  return call.inputs[0].shape[1] <= kMaxWidth;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& scored = call.inputs[3];
  LaunchGroups(context, TokenModule(), "score_tokens_kernel", scored.shape[0], kGroupSize,
               ScoreTokensParams{.x = RowsOf(x),
                                 .copies = RowsOf(call.inputs[1]),
                                 .columns = call.inputs[2].Data<const int32_t>(),
                                 .scored = RowsOf(scored),
                                 .y = RowsOf(call.outputs[0]),
                                 .width = static_cast<int32_t>(x.shape[1])});
}

}  // namespace

const ops::Kernel kScoreTokens = SyclKernel("score_tokens", Run, Supports);

}  // namespace pagemill::sycl
