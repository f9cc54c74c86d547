// File: cc/ops/argmax/argmax_conformance.h
// Conformance checks for every kernel of `argmax` that supports the call: empty input, equal
// elements, NaN and infinities at any place, misaligned and padded rows, 1 and 3 threads; bit for
// bit, since the contract is exact.
#ifndef PAGEMILL_CC_OPS_ARGMAX_ARGMAX_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_ARGMAX_ARGMAX_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckArgmaxConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ARGMAX_ARGMAX_CONFORMANCE_H_
