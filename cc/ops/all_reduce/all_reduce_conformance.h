// File: cc/ops/all_reduce/all_reduce_conformance.h
// What every kernel row of all_reduce has to do: in a group of one, copy; in a group of threads,
// the sum in rank order, bit for bit. Test code only.
#ifndef PAGEMILL_CC_OPS_ALL_REDUCE_ALL_REDUCE_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_ALL_REDUCE_ALL_REDUCE_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckAllReduceConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ALL_REDUCE_ALL_REDUCE_CONFORMANCE_H_
