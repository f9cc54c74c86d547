// File: cc/ops/pool/pool_conformance.h
// Conformance checks for every kernel of `pool`, on any back end with memory that the CPU can
// address. A back end's test passes its op definition and the capabilities of its machine.
#ifndef PAGEMILL_CC_OPS_POOL_POOL_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_POOL_POOL_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckPoolConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_POOL_POOL_CONFORMANCE_H_
