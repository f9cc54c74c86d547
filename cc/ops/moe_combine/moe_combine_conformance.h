// File: cc/ops/moe_combine/moe_combine_conformance.h
// Conformance checks for every kernel of `moe_combine` (rowwise_conformance.h), for odd sizes.
#ifndef PAGEMILL_CC_OPS_MOE_COMBINE_MOE_COMBINE_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_MOE_COMBINE_MOE_COMBINE_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckMoeCombineConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_MOE_COMBINE_MOE_COMBINE_CONFORMANCE_H_
