// The reference of `linear`: reads a weight row as floats, accumulates its products in double.
#include <cstdint>

#include "cc/ops/double_dot/double_dot.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/quantized/quantized.h"

namespace pagemill::ops::linear {

namespace {

void RunMatrix(const OpCall& call, size_t index, KernelContext& context) {
  const TensorView& w = call.inputs[1 + 2 * index];
  const TensorView& x = call.inputs[0];
  const size_t bias = 2 + 2 * index;
  const bool has_bias = bias < call.inputs.size() && call.inputs[bias].rank > 0;
  const int64_t width = w.shape[1];
  context.pool->ParallelFor(w.shape[0], 1, [&](int64_t begin, int64_t end, int worker) {
    float* row = reinterpret_cast<float*>(context.workspace.data()) + worker * width;
    for (int64_t m = begin; m < end; ++m) {
      ReadWeightRow(w, /*matrix=*/0, m, row);
      for (int64_t n = 0; n < x.shape[0]; ++n) {
        const double first = has_bias ? call.inputs[bias].Data<const float>()[m] : 0.0;
        call.outputs[index].Row<float>(n)[m] =
            static_cast<float>(first + DoubleDot(row, x.Row<const float>(n), width));
      }
    }
  });
}

}  // namespace

void RunReference(const OpCall& call, KernelContext& context) {
  if (call.inputs[0].shape[0] == 0) return;
  for (size_t i = 0; i < call.outputs.size(); ++i) RunMatrix(call, i, context);
}

int64_t ReferenceWorkspaceBytes(const OpCall& call, int32_t num_threads) {
  return num_threads * call.inputs[1].shape[1] * static_cast<int64_t>(sizeof(float));
}

}  // namespace pagemill::ops::linear
