// The reference of `moe_combine`.
#include <cstdint>

#include "cc/ops/moe_combine/moe_combine.h"

namespace pagemill::ops::moe_combine {

void RunReference(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& weights = call.inputs[1];
  const TensorView& y = call.outputs[0];
  const int64_t width = y.RowElements(), step = ChoiceStep(call);
  context.pool->ParallelFor(y.shape[0], 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t h = 0; h < width; ++h) {
        double sum = 0;
        for (int64_t j = 0; j < weights.shape[1]; ++j) {
          sum += double{weights.Row<const float>(n)[j]} * x.Row<const float>(n)[j * step + h];
        }
        y.Row<float>(n)[h] = static_cast<float>(sum);
      }
    }
  });
}

}  // namespace pagemill::ops::moe_combine
