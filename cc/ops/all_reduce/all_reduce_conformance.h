// File: cc/ops/all_reduce/all_reduce_conformance.h
// Conformance checks for every kernel of all_reduce: a copy in a group of one; in a group of
// threads, the sum in rank order, bit for bit. Test code only.
#ifndef PAGEMILL_CC_OPS_ALL_REDUCE_ALL_REDUCE_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_ALL_REDUCE_ALL_REDUCE_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckAllReduceConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ALL_REDUCE_ALL_REDUCE_CONFORMANCE_H_
