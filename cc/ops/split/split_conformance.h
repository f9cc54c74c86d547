// File: cc/ops/split/split_conformance.h
// Conformance checks for every kernel of `split`: for each type, odd sizes, misaligned and padded
// rows, 1 to 3 threads and no rows; bit for bit, since the contract is exact.
#ifndef PAGEMILL_CC_OPS_SPLIT_SPLIT_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_SPLIT_SPLIT_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckSplitConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SPLIT_SPLIT_CONFORMANCE_H_
