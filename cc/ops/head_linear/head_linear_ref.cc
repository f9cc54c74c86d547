// The reference of `head_linear`: a head's matrix as floats, products added in double.
#include <cstdint>

#include "cc/ops/head_linear/head_linear.h"
#include "cc/ops/quantized/quantized.h"

namespace pagemill::ops::head_linear {

void RunReference(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& w = call.inputs[1];
  const TensorView& y = call.outputs[0];
  const bool transposed = call.attributes->GetInt("transposed", 0) != 0;
  const int64_t k = x.shape[2], m = y.shape[2], columns = w.shape[2];
  float* const matrix = reinterpret_cast<float*>(context.workspace.data());
  for (int64_t head = 0; head < w.shape[0]; ++head) {
    for (int64_t row = 0; row < w.shape[1]; ++row) {
      ReadWeightRow(w, head, row, matrix + row * columns);
    }
    for (int64_t n = 0; n < x.shape[0]; ++n) {
      for (int64_t out = 0; out < m; ++out) {
        const float* const of_x = x.Row<const float>(n) + head * k;
        const float* const of_matrix = matrix + out * (transposed ? 1 : columns);
        const int64_t step = transposed ? columns : 1;
        double sum = 0;
        for (int64_t in = 0; in < k; ++in) {
          sum += static_cast<double>(of_x[in]) * of_matrix[in * step];
        }
        y.Row<float>(n)[head * m + out] = static_cast<float>(sum);
      }
    }
  }
}

int64_t ReferenceWorkspaceBytes(const OpCall& call, int32_t) {
  return call.inputs[1].RowElements() * int64_t{sizeof(float)};
}

}  // namespace pagemill::ops::head_linear
