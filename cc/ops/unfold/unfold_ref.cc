// The reference of `unfold`: one byte at a time.
#include <cstdint>

#include "cc/ops/unfold/unfold.h"

namespace pagemill::ops::unfold {

void RunReference(const OpCall& call, KernelContext&) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const Windows windows = WindowsOf(call);
  const int64_t bytes = RowBytes(x.dtype, 1);
  for (int64_t n = 0; n < x.shape[0]; ++n) {
    for (int64_t i = 0; i < y.RowElements() * bytes; ++i) {
      const int64_t element = i / bytes % windows.elements();
      const int64_t window = i / bytes / windows.elements();
      const int64_t position = window * windows.stride + element % windows.size - windows.padding;
      const int64_t from = (position * windows.channels + element / windows.size) * bytes;
      const bool inside = position >= 0 && position < windows.positions;
      y.Row<uint8_t>(n)[i] = inside ? x.Row<const uint8_t>(n)[from + i % bytes] : 0;
    }
  }
}

}  // namespace pagemill::ops::unfold
