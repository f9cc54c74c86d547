// File: cc/ops/activation/activation.h
// Elementwise activation: y = act(x).
//
//   inputs   x  act [N, ...]   rows of F elements, any trailing shape
//   outputs  y  act [N, ...]   rows of F elements
//   attributes  kind: an ActivationKind; limit = 0 (none): x from lower = -limit to limit
//   aliasing    y may be x
//
// Error bound: that of the function in cc/ops/vec/vec_math.h: 1e-6 max(1, |x|). The square of ReLU
// is rounded once, and infinite above 1.8e19.
//
// Kernels: "avx512", "avx2", "portable", "reference" (computes in double).
#ifndef PAGEMILL_CC_OPS_ACTIVATION_ACTIVATION_H_
#define PAGEMILL_CC_OPS_ACTIVATION_ACTIVATION_H_

#include "cc/ops/activation/activation_kind.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

struct ActivationArgs {
  TensorView x, y;
  ActivationKind kind = ActivationKind::kSilu;
  float limit = 0;  // 0: none
  float lower = 0;  // with a limit
};

ActivationArgs ToActivationArgs(const OpCall& call);
const OpDefinition& ActivationOp();

void ActivationReference(const OpCall& call, KernelContext& context);
// The function in double, as the references of `activation` and `gated_activation` apply it.
double ActivateReference(ActivationKind kind, double x);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ACTIVATION_ACTIVATION_H_
