// File: cc/ops/scale/scale_conformance.h
// Conformance checks for every kernel of `scale` (rowwise_conformance.h), for odd sizes.
#ifndef PAGEMILL_CC_OPS_SCALE_SCALE_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_SCALE_SCALE_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckScaleConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SCALE_SCALE_CONFORMANCE_H_
