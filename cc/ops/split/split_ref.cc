// The reference of `split`: one byte at a time.
#include <cstdint>

#include "cc/ops/split/split.h"

namespace pagemill::ops::split {

void RunReference(const OpCall& call, KernelContext&) {
  const TensorView& x = call.inputs[0];
  const int64_t width = RowBytes(x.dtype, x.shape[x.rank - 1]);
  const int64_t pieces = x.RowElements() / x.shape[x.rank - 1];
  for (int64_t n = 0; n < x.shape[0]; ++n) {
    int64_t column = 0;
    for (const TensorView& y : call.outputs) {
      const int64_t part = RowBytes(y.dtype, y.RowElements() / pieces);
      for (int64_t i = 0; i < RowBytes(y.dtype, y.RowElements()); ++i) {
        y.Row<uint8_t>(n)[i] = x.Row<const uint8_t>(n)[i / part * width + column + i % part];
      }
      column += part;
    }
  }
}

}  // namespace pagemill::ops::split
