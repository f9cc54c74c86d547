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
      const auto place = PlaceOf(windows, x.shape[0], n, window, element % windows.size);
      if (!place) {
        y.Row<uint8_t>(n)[i] = 0;
        continue;
      }
      const int64_t from =
          (place->position * windows.channels + element / windows.size) * bytes + i % bytes;
      y.Row<uint8_t>(n)[i] = x.Row<const uint8_t>(place->row)[from];
    }
  }
}

}  // namespace pagemill::ops::unfold
