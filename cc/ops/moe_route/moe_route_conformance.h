// File: cc/ops/moe_route/moe_route_conformance.h
// Conformance checks for every kernel of `moe_route`, on any back end with memory that the CPU can
// address.
//
// For many numbers of experts, choices and groups, both scorings, with and without bias, misaligned
// and padded operands: the ids of the reference and weights within the contract's bound; equal
// logits; NaN and infinite logits; the same bits with 1 to 3 threads and when each token is alone;
// exactly the outputs are written.
#ifndef PAGEMILL_CC_OPS_MOE_ROUTE_MOE_ROUTE_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_MOE_ROUTE_MOE_ROUTE_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckMoeRouteConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_MOE_ROUTE_MOE_ROUTE_CONFORMANCE_H_
