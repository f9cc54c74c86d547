#include "cc/ops/adjust_logits/adjust_logits.h"

#include "sycl/ops/adjust_logits/adjust_logits_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& biases = call.inputs[2];
  const TensorView& penalties = call.inputs[3];
  const AdjustLogitsParams params = {.x = RowsOf(x),
                                     .counts = RowsOf(call.inputs[1]),
                                     .biases = RowsOf(biases),
                                     .penalties = RowsOf(penalties),
                                     .ids = call.inputs[4].Data<const int32_t>(),
                                     .num_biases = biases.shape[0],
                                     .num_penalties = penalties.shape[0],
                                     .width = x.shape[1]};
  LaunchItems(context, TokenModule(), "add_biases_kernel", biases.shape[0], params);
  LaunchItems(context, TokenModule(), "penalize_kernel", penalties.shape[0] * x.shape[1], params);
}

}  // namespace

const ops::Kernel kAdjustLogits = SyclKernel("adjust_logits", Run);

}  // namespace pagemill::sycl
