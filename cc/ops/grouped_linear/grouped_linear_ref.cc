// The reference of `grouped_linear`: for each expert, reads each row of its matrix and accumulates
// the products with the expert's rows in double.
#include <algorithm>
#include <cstdint>

#include "cc/ops/double_dot/double_dot.h"
#include "cc/ops/grouped_linear/grouped_linear.h"
#include "cc/ops/quantized/quantized.h"

namespace pagemill::ops::grouped_linear {
namespace {

int64_t ExpertOf(const OpCall& call, int64_t row) {
  const int64_t choices = call.inputs[1].RowElements();
  return call.inputs[1].Row<const int32_t>(row / choices)[row % choices];
}

void MultiplyExpert(const OpCall& call, size_t output, int64_t expert, float* weights) {
  const TensorView& stack = call.inputs[WeightOperand(output)];
  const RoutedRows x = InputRowsOf(call), y = OutputRowsOf(call, output);
  const float* const bias = BiasOf(call, output, expert);
  for (int64_t m = 0; m < stack.shape[1]; ++m) {
    ReadWeightRow(stack, expert, m, weights);
    for (int64_t row = 0; row < call.inputs[1].Elements(); ++row) {
      if (ExpertOf(call, row) != expert) continue;
      const double first = bias == nullptr ? 0.0 : bias[m];
      y.At(row)[m] = static_cast<float>(first + DoubleDot(weights, x.At(row), stack.shape[2]));
    }
  }
}

bool HasRows(const OpCall& call, int64_t expert) {
  for (int64_t row = 0; row < call.inputs[1].Elements(); ++row) {
    if (ExpertOf(call, row) == expert) return true;
  }
  return false;
}

// Rows of no expert are 0.
void ClearOthers(const OpCall& call, size_t output) {
  const TensorView& stack = call.inputs[WeightOperand(output)];
  for (int64_t row = 0; row < call.inputs[1].Elements(); ++row) {
    const int64_t expert = ExpertOf(call, row);
    if (expert >= 0 && expert < stack.shape[0]) continue;
    std::fill_n(OutputRowsOf(call, output).At(row), stack.shape[1], 0.0f);
  }
}

}  // namespace

void RunReference(const OpCall& call, KernelContext& context) {
  const TensorView& stack = call.inputs[WeightOperand(0)];
  for (size_t i = 0; i < call.outputs.size(); ++i) ClearOthers(call, i);
  context.pool->ParallelFor(stack.shape[0], 1, [&](int64_t begin, int64_t end, int worker) {
    float* const weights =
        reinterpret_cast<float*>(context.workspace.data()) + worker * stack.shape[2];
    for (int64_t expert = begin; expert < end; ++expert) {
      if (!HasRows(call, expert)) continue;
      for (size_t i = 0; i < call.outputs.size(); ++i) MultiplyExpert(call, i, expert, weights);
    }
  });
}

int64_t ReferenceWorkspaceBytes(const OpCall& call, int32_t num_threads) {
  return num_threads * call.inputs[WeightOperand(0)].shape[2] * int64_t{sizeof(float)};
}

}  // namespace pagemill::ops::grouped_linear
