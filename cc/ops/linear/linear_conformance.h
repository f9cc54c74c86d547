// File: cc/ops/linear/linear_conformance.h
// What every kernel of `linear` must fulfil, on any back end whose memory the CPU can address:
// a back end's test calls CheckLinearConformance with its table and its machine.
//
// Checked for every row that supports the call: closeness to the double-precision reference within
// the contract's bound (another one for rows that round activations) for odd sizes, all weight
// dtypes, with and without bias, misaligned and padded operands, empty input; that exactly the
// outputs are written; and that y[n] has the same bits whatever else is in the call, however the
// rows are split into calls, and with 1 to 3 threads. Row maxima: row_maxima_conformance.h.
#ifndef PAGEMILL_CC_OPS_LINEAR_LINEAR_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_LINEAR_LINEAR_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckLinearConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_LINEAR_LINEAR_CONFORMANCE_H_
