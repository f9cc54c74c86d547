// File: cc/ops/gated_activation/gated_activation_conformance.h
// Conformance checks for every kernel of `gated_activation`: closeness to the reference within the
// contract's bound for odd sizes, and the checks of rowwise_conformance.h. A back end's test passes
// its op definition and the capabilities of its machine.
#ifndef PAGEMILL_CC_OPS_GATED_ACTIVATION_GATED_ACTIVATION_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_GATED_ACTIVATION_GATED_ACTIVATION_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckGatedActivationConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_GATED_ACTIVATION_GATED_ACTIVATION_CONFORMANCE_H_
