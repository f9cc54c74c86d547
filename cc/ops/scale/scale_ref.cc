#include "cc/ops/scale/scale.h"

namespace pagemill::ops {

void ScaleReference(const OpCall& call, KernelContext&) {
  const ScaleArgs args = ToScaleArgs(call);
  for (int64_t n = 0; n < args.x.shape[0]; ++n) {
    const float factor = args.FactorOf(n);
    for (int64_t i = 0; i < args.x.RowElements(); ++i) {
      const float y = args.x.Row<float>(n)[i] * factor;
      args.y.Row<float>(n)[i] = args.factors == nullptr ? y : y * args.factors[i];
    }
  }
}

}  // namespace pagemill::ops
