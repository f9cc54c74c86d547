// The reference of `embedding`: one row after the other, on one thread.
#include <cstdint>

#include "cc/ops/embedding/embedding.h"
#include "cc/ops/quantized/quantized.h"

namespace pagemill::ops::embedding {

void RunReference(const OpCall& call, KernelContext&) {
  const TensorView& ids = call.inputs[0];
  const TensorView& w = call.inputs[1];
  const TensorView& y = call.outputs[0];
  const float scale = static_cast<float>(call.attributes->Get("scale", 1.0));
  for (int64_t n = 0; n < ids.shape[0]; ++n) {
    float* row = y.Row<float>(n);
    ReadWeightRow(w, /*matrix=*/0, RowOf(call, ids.Data<const int32_t>()[n]), row);
    for (int64_t i = 0; i < w.shape[1]; ++i) row[i] = row[i] * scale;
  }
}

}  // namespace pagemill::ops::embedding
