// File: cc/ops/add/add_conformance.h
// Conformance checks for every kernel of `add`: closeness to the reference within the contract's
// bound for odd sizes, and the checks of rowwise_conformance.h. A back end's test passes its op
// definition and the capabilities of its machine.
#ifndef PAGEMILL_CC_OPS_ADD_ADD_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_ADD_ADD_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckAddConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ADD_ADD_CONFORMANCE_H_
