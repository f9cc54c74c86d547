// File: cc/ops/grouped_linear/grouped_linear_conformance.h
// Conformance checks for every kernel of `grouped_linear`, on any back end with memory that the CPU
// can address: a back end's test passes its two ops and the capabilities of its machine to
// CheckGroupedLinearConformance.
//
// Each row of each output has the bits of the kernel of `linear` of the same name for this row and
// its expert's matrix (values are checked by the conformance of `linear`): for all weight dtypes,
// one stack and two, with and without bias, x shared by a token's choices or not, misaligned and
// padded operands, 1 and 3 threads, experts without rows, all rows on one expert, ids of no expert,
// no tokens. Exactly the outputs are written.
#ifndef PAGEMILL_CC_OPS_GROUPED_LINEAR_GROUPED_LINEAR_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_GROUPED_LINEAR_GROUPED_LINEAR_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckGroupedLinearConformance(const OpDefinition& op, const OpDefinition& linear,
                                   const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_GROUPED_LINEAR_GROUPED_LINEAR_CONFORMANCE_H_
