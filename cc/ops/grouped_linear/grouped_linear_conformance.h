// File: cc/ops/grouped_linear/grouped_linear_conformance.h
// What every kernel of `grouped_linear` must fulfil, on any back end whose memory the CPU can
// address: a back end's test calls CheckGroupedLinearConformance with its two ops and its machine.
//
// Each row of each output has the bits that the kernel of `linear` of the same name gives for this
// row and its expert's matrix, whose own conformance checks values: for all weight dtypes, one
// stack and two, with and without bias, x shared by a token's choices or not, misaligned and padded
// operands, 1 and 3 threads, experts without rows, all rows on one expert, ids of no expert, no
// tokens. So a row depends on nothing else in the call. Exactly the outputs are written.
#ifndef PAGEMILL_CC_OPS_GROUPED_LINEAR_GROUPED_LINEAR_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_GROUPED_LINEAR_GROUPED_LINEAR_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckGroupedLinearConformance(const OpDefinition& op, const OpDefinition& linear,
                                   const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_GROUPED_LINEAR_GROUPED_LINEAR_CONFORMANCE_H_
