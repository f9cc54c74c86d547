// The reference of `scatter_rows`: one byte at a time.
#include <cstdint>

#include "cc/ops/scatter_rows/scatter_rows.h"

namespace pagemill::ops::scatter_rows {

void RunReference(const OpCall& call, KernelContext&) {
  const TensorView& x = call.inputs[0];
  const TensorView& y = call.inputs[1];
  const TensorView& z = call.outputs[0];
  const int32_t* rows = call.inputs[2].Data<const int32_t>();
  const int64_t bytes = RowBytes(x.dtype, x.RowElements());
  for (int64_t t = 0; t < x.shape[0]; ++t) {
    for (int64_t i = 0; i < bytes; ++i) z.Row<uint8_t>(t)[i] = x.Row<const uint8_t>(t)[i];
  }
  for (int64_t m = 0; m < y.shape[0]; ++m) {
    for (int64_t i = 0; i < bytes; ++i) z.Row<uint8_t>(rows[m])[i] = y.Row<const uint8_t>(m)[i];
  }
}

}  // namespace pagemill::ops::scatter_rows
