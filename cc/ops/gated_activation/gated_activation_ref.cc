#include <algorithm>

#include "cc/ops/activation/activation.h"
#include "cc/ops/gated_activation/gated_activation.h"

namespace pagemill::ops {

void GatedActivationReference(const OpCall& call, KernelContext&) {
  const GatedActivationArgs args = ToGatedActivationArgs(call);
  for (int64_t n = 0; n < args.gate.shape[0]; ++n) {
    const float* gate = args.gate.Row<float>(n);
    const float* up = args.up.Row<float>(n);
    float* y = args.y.Row<float>(n);
    for (int64_t i = 0; i < args.gate.RowElements(); ++i) {
      double x = gate[i];
      double factor = up[i];
      if (args.limit > 0) {
        const double limit = args.limit;
        x = std::min(x, limit);
        factor = std::clamp(factor, -limit, limit) + args.up_offset;
      }
      y[i] = static_cast<float>(ActivateReference(args.kind, x) * factor);
    }
  }
}

}  // namespace pagemill::ops
