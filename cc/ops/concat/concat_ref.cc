// The reference of `concat`: one byte at a time.
#include <cstdint>

#include "cc/ops/concat/concat.h"

namespace pagemill::ops::concat {

void RunReference(const OpCall& call, KernelContext&) {
  const TensorView& y = call.outputs[0];
  for (int64_t n = 0; n < y.shape[0]; ++n) {
    int64_t at = 0;
    for (const TensorView& x : call.inputs) {
      for (int64_t i = 0; i < RowBytes(x.dtype, x.RowElements()); ++i, ++at) {
        y.Row<uint8_t>(n)[at] = x.Row<const uint8_t>(n)[i];
      }
    }
  }
}

}  // namespace pagemill::ops::concat
