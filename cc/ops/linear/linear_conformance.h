// File: cc/ops/linear/linear_conformance.h
// Conformance checks for every kernel of `linear`, on any back end with memory that the CPU can
// address: a back end's test passes its op and the capabilities of its machine to
// CheckLinearConformance.
//
// For every kernel that supports the call: closeness to the double-precision reference within the
// contract's bound (another one for kernels that round activations) for odd sizes, all weight
// dtypes, with and without bias, misaligned and padded operands, empty input; exactly the outputs
// are written; y[n] has the same bits whatever else is in the call, however the rows are divided
// into calls, and with 1 to 3 threads. Row maxima are checked by row_maxima_conformance.h.
#ifndef PAGEMILL_CC_OPS_LINEAR_LINEAR_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_LINEAR_LINEAR_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckLinearConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_LINEAR_LINEAR_CONFORMANCE_H_
