#include "cc/ops/scaled_linear/scaled_linear_ref.h"

#include "cc/tensor/float8.h"

namespace pagemill::ops::scaled {
namespace {

double Element(const TensorView& w, int64_t m, int64_t k) {
  const uint8_t bits = w.Row<const uint8_t>(m)[k];
  return w.dtype == DType::kI8 ? static_cast<int8_t>(bits) : F8E4M3ToFloat(bits);
}

}  // namespace

void RunReference(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const TensorView& w = call.inputs[1 + 3 * i];
    const TensorView& scales = call.inputs[2 + 3 * i];
    const size_t bias = 3 + 3 * i;
    const bool has_bias = bias < call.inputs.size() && call.inputs[bias].rank > 0;
    const int64_t block_rows = call.attributes->GetInt("block_rows", 1);
    const int64_t block_columns = call.attributes->GetInt("block_columns", w.shape[1]);
    context.pool->ParallelFor(w.shape[0], 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t m = begin; m < end; ++m) {
        const float* const row = scales.Row<const float>(m / block_rows);
        for (int64_t n = 0; n < x.shape[0]; ++n) {
          double sum = has_bias ? call.inputs[bias].Data<const float>()[m] : 0.0;
          for (int64_t k = 0; k < w.shape[1]; ++k) {
            sum += Element(w, m, k) * row[k / block_columns] * x.Row<const float>(n)[k];
          }
          call.outputs[i].Row<float>(n)[m] = static_cast<float>(sum);
        }
      }
    });
  }
}

}  // namespace pagemill::ops::scaled
