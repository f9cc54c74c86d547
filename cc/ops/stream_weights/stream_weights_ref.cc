// The reference of `stream_weights`.
#include <cstdint>

#include "cc/ops/stream_weights/stream_weights.h"
#include "cc/ops/stream_weights/weights_of_row.h"

namespace pagemill::ops::stream_weights {

void RunReference(const OpCall& call, KernelContext&) {
  for (int64_t t = 0; t < call.inputs[0].shape[0]; ++t) {
    WeightsOfRow<double>(RowOf(call, t)).Run();
  }
}

}  // namespace pagemill::ops::stream_weights
