// The reference of `grouped_linear`: for each row, reads each row of its expert's matrix and
// accumulates the products in double.
#include "cc/ops/grouped_linear/grouped_linear.h"
#include "cc/ops/quantized/quantized.h"

namespace pagemill::ops::grouped_linear {
namespace {

void MultiplyRow(const OpCall& call, size_t output, int64_t row, float* weights) {
  const TensorView& ids = call.inputs[1];
  const TensorView& stack = call.inputs[WeightOperand(output)];
  const int64_t choices = ids.RowElements();
  const int64_t expert = ids.Row<const int32_t>(row / choices)[row % choices];
  const bool exists = expert >= 0 && expert < stack.shape[0];
  const float* const x = InputRowsOf(call).At(row);
  float* const y = OutputRowsOf(call, output).At(row);
  const float* const bias = exists ? BiasOf(call, output, expert) : nullptr;
  for (int64_t m = 0; m < stack.shape[1]; ++m) {
    double sum = bias == nullptr ? 0.0 : bias[m];
    if (exists) {
      ReadWeightRow(stack, expert, m, weights);
      for (int64_t k = 0; k < stack.shape[2]; ++k) sum += static_cast<double>(weights[k]) * x[k];
    }
    y[m] = static_cast<float>(sum);
  }
}

}  // namespace

void RunReference(const OpCall& call, KernelContext& context) {
  const int64_t k = call.inputs[WeightOperand(0)].shape[2];
  context.pool->ParallelFor(
      call.inputs[1].Elements(), 1, [&](int64_t begin, int64_t end, int worker) {
        float* const weights = reinterpret_cast<float*>(context.workspace.data()) + worker * k;
        for (int64_t row = begin; row < end; ++row) {
          for (size_t i = 0; i < call.outputs.size(); ++i) MultiplyRow(call, i, row, weights);
        }
      });
}

int64_t ReferenceWorkspaceBytes(const OpCall& call, int32_t num_threads) {
  return num_threads * call.inputs[WeightOperand(0)].shape[2] * int64_t{sizeof(float)};
}

}  // namespace pagemill::ops::grouped_linear
