// File: cc/ops/linear/scaled/scaled_conformance.h
// Conformance checks for `linear` with scaled weights, for every kernel that `caps` supports:
// values within the contract's bounds of the exact product, and equal bits of a row in any batch,
// with any number of threads, alone and among several matrices. Test code only.
#ifndef PAGEMILL_CC_OPS_LINEAR_SCALED_SCALED_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_LINEAR_SCALED_SCALED_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckScaledConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_LINEAR_SCALED_SCALED_CONFORMANCE_H_
