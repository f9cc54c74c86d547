// The reference of `select_rows`: one byte at a time.
#include <cstdint>

#include "cc/ops/select_rows/select_rows.h"

namespace pagemill::ops::select_rows {

void RunReference(const OpCall& call, KernelContext&) {
  const TensorView& x = call.inputs[0];
  const TensorView& rows = call.inputs[1];
  const TensorView& y = call.outputs[0];
  for (int64_t l = 0; l < rows.shape[0]; ++l) {
    const int64_t bytes = RowBytes(x.dtype, x.RowElements());
    for (int64_t i = 0; i < bytes * call.attributes->GetInt("count", 1); ++i) {
      const int64_t row = rows.Data<const int32_t>()[l] + i / bytes;
      y.Row<uint8_t>(l)[i] = row < x.shape[0] ? x.Row<const uint8_t>(row)[i % bytes] : 0;
    }
  }
}

}  // namespace pagemill::ops::select_rows
