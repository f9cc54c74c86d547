// File: cc/ops/causal_conv/causal_conv_conformance.h
// Conformance checks for every kernel of `causal_conv` (state_conformance.h), for odd sizes.
#ifndef PAGEMILL_CC_OPS_CAUSAL_CONV_CAUSAL_CONV_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_CAUSAL_CONV_CAUSAL_CONV_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckCausalConvConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_CAUSAL_CONV_CAUSAL_CONV_CONFORMANCE_H_
