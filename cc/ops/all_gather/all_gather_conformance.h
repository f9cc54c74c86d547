// File: cc/ops/all_gather/all_gather_conformance.h
// Conformance checks for every kernel of all_gather: a copy in a group of one; in a group of
// threads, the columns of all ranks side by side. Test code only.
#ifndef PAGEMILL_CC_OPS_ALL_GATHER_ALL_GATHER_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_ALL_GATHER_ALL_GATHER_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckAllGatherConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ALL_GATHER_ALL_GATHER_CONFORMANCE_H_
