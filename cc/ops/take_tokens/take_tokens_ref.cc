// The reference of `take_tokens`, and the only CPU kernel: it runs on test devices.
#include <algorithm>
#include <cstdint>

#include "cc/ops/take_tokens/take_tokens.h"

namespace pagemill::ops::take_tokens {

void RunReference(const OpCall& call, KernelContext&) {
  const TensorView& ids = call.inputs[0];
  for (int64_t t = 0; t < ids.shape[0]; ++t) {
    const int32_t id = *ids.Row<const int32_t>(t);
    const int32_t token = id >= 0 ? id : *call.inputs[1].Row<const int32_t>(-1 - id);
    *call.outputs[0].Row<int32_t>(t) = std::max(0, token);
  }
}

}  // namespace pagemill::ops::take_tokens
