#include "cc/ops/mask_tokens/mask_tokens.h"

#include <cstddef>

#include "cc/ops/sample/row_draw.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/mask_tokens/mask_tokens_params.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  LaunchItems(context, TokenModule(), "mask_tokens_kernel", x.shape[0] * x.shape[1],
              MaskTokensParams{.x = RowsOf(x),
                               .y = RowsOf(call.outputs[0]),
                               .draws = RowsOf(call.inputs[1]),
                               .masks = RowsOf(call.inputs[2]),
                               .mask_word = offsetof(ops::RowDraw, mask) / sizeof(int32_t),
                               .rows = x.shape[0],
                               .width = x.shape[1]});
}

}  // namespace

const ops::Kernel kMaskTokens = SyclKernel("mask_tokens", Run);

}  // namespace pagemill::sycl
