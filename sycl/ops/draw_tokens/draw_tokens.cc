#include "cc/ops/draw_tokens/draw_tokens.h"

#include <cstddef>

#include "cc/ops/sample/row_draw.h"
#include "sycl/ops/draw_tokens/draw_tokens_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

static_assert(sizeof(DrawWords) == sizeof(ops::RowDraw));
static_assert(offsetof(DrawWords, top_k) == offsetof(ops::RowDraw, top_k));
static_assert(offsetof(DrawWords, position) == offsetof(ops::RowDraw, position));

constexpr int32_t kGroupSize = 256;
constexpr int64_t kMaxWidth = int64_t{1} << 23;  // sums of weights fit in 64 bits

bool Supports(const device::Capabilities&, const ops::OpCall& call) {
  return call.inputs[0].shape[1] <= kMaxWidth;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  LaunchGroups(context, TokenModule(), "draw_tokens_kernel", x.shape[0], kGroupSize,
               DrawTokensParams{.x = RowsOf(x),
                                .columns = call.inputs[1].Data<const int32_t>(),
                                .values = call.inputs[2].Data<const float>(),
                                .draws = RowsOf(call.inputs[3]),
                                .y = call.outputs[0].Data<int32_t>(),
                                .width = static_cast<int32_t>(x.shape[1])});
}

}  // namespace

const ops::Kernel kDrawTokens = SyclKernel("draw_tokens", Run, Supports);

}  // namespace pagemill::sycl
