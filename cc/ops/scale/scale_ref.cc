#include "cc/ops/scale/scale.h"

namespace pagemill::ops {

void ScaleReference(const OpCall& call, KernelContext&) {
  const ScaleArgs args = ToScaleArgs(call);
  for (int64_t n = 0; n < args.x.shape[0]; ++n) {
    const float factor = args.FactorOf(n);
    const int64_t size = args.x.RowElements();
    for (int64_t i = 0; i < size; ++i) {
      float y = args.x.Row<float>(n)[i] * factor;
      if (args.factors != nullptr) y *= args.factors[i];
      if (args.group_factors.rank > 0) {
        const int64_t width = size / args.group_factors.shape[1];
        y *= args.group_factors.Row<float>(n)[i / width];
      }
      args.y.Row<float>(n)[i] = y;
    }
  }
}

}  // namespace pagemill::ops
