// Rows and matrices of a call of `grouped_linear`.
#include "cc/ops/grouped_linear/grouped_linear.h"

namespace pagemill::ops::grouped_linear {

RoutedRows InputRowsOf(const OpCall& call) {
  const TensorView& x = call.inputs[0];
  const int64_t k = call.inputs[WeightOperand(0)].shape[2];
  return {x, call.inputs[1].RowElements(), x.RowElements() == k ? 0 : k};
}

RoutedRows OutputRowsOf(const OpCall& call, size_t output) {
  return {call.outputs[output], call.inputs[1].RowElements(),
          call.inputs[WeightOperand(output)].shape[1]};
}

TensorView ExpertView(const TensorView& stack, int64_t expert) {
  return TensorView::Dense(stack.Row<void>(expert), stack.dtype, {stack.shape[1], stack.shape[2]});
}

const float* BiasOf(const OpCall& call, size_t output, int64_t expert) {
  const TensorView& bias = call.inputs[BiasOperand(output)];
  return bias.rank == 0 ? nullptr : bias.Row<const float>(expert);
}

}  // namespace pagemill::ops::grouped_linear
