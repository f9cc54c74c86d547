// The plain form of `embedding`: one block at a time, in order, on one thread.
#include <cstdint>

#include "cc/ops/block_format/block_format.h"
#include "cc/ops/embedding/embedding.h"

namespace pagemill::ops::embedding {

void RunReference(const OpCall& call, KernelContext&) {
  const TensorView& ids = call.inputs[0];
  const TensorView& w = call.inputs[1];
  const TensorView& y = call.outputs[0];
  const float scale = static_cast<float>(call.attributes->Get("scale", 1.0));
  const DTypeInfo& info = Info(w.dtype);
  for (int64_t n = 0; n < ids.shape[0]; ++n) {
    const uint8_t* block = w.Row<const uint8_t>(ids.Data<const int32_t>()[n]);
    float* row = y.Row<float>(n);
    for (int64_t i = 0; i < w.shape[1]; i += info.block_elements, block += info.block_bytes) {
      DequantizeRow(w.dtype, block, info.block_elements, row + i);
      for (int32_t j = 0; j < info.block_elements; ++j) row[i + j] = row[i + j] * scale;
    }
  }
}

}  // namespace pagemill::ops::embedding
