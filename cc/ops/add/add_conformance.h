// File: cc/ops/add/add_conformance.h
// What every kernel row of `add` must fulfil: closeness to the reference within the contract's
// bound for odd sizes, and what rowwise_conformance.h checks. A back end's test calls it with its
// table and its machine.
#ifndef PAGEMILL_CC_OPS_ADD_ADD_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_ADD_ADD_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckAddConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ADD_ADD_CONFORMANCE_H_
