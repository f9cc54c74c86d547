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
      y[i] = static_cast<float>(ActivateReference(args.kind, gate[i]) * up[i]);
    }
  }
}

}  // namespace pagemill::ops
