// File: cc/ops/gated_activation/gated_activation.h
// The elementwise half of a gated MLP: y = act(gate) * up, or of limited operands:
//
//   y = act(min(gate, limit)) * (clamp(up, -limit, limit) + up_offset)
//
//   inputs   gate, up  act [N, ...]   rows of F elements, any trailing shape
//   outputs  y         act [N, ...]   rows of F elements
//   attributes  kind: an ActivationKind; limit = 0: none; up_offset = 0, only with a limit
//   aliasing    y may be gate
//
// Error bound: that of the function in cc/ops/vec/vec_math.h times |up|: 1e-6 max(1, |gate|) |up|.
//
// Kernels: "avx512", "avx2", "portable" (those of activation), "reference" (computes in double).
#ifndef PAGEMILL_CC_OPS_GATED_ACTIVATION_GATED_ACTIVATION_H_
#define PAGEMILL_CC_OPS_GATED_ACTIVATION_GATED_ACTIVATION_H_

#include "cc/ops/activation/activation_kind.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

struct GatedActivationArgs {
  TensorView gate, up, y;
  ActivationKind kind = ActivationKind::kSilu;
  float limit = 0;  // 0: none
  float up_offset = 0;
};

GatedActivationArgs ToGatedActivationArgs(const OpCall& call);
const OpDefinition& GatedActivationOp();

void GatedActivationReference(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_GATED_ACTIVATION_GATED_ACTIVATION_H_
