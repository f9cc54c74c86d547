// File: cc/ops/matrix_conformance.h
// Conformance checks of ops with weight matrices (`linear`): each row of x gives a row of every
// output, whose bits depend on nothing else in the call. Test code only.
//
//   const OpCall call{inputs, outputs, &attributes, nullptr};      // inputs: x, then the matrices'
//   CheckBatchInvariance(op, caps, call, random);                  // of one matrix
//   CheckMatricesTogether(op, caps, call, {&y0, &y1, &y2});        // of several
#ifndef PAGEMILL_CC_OPS_MATRIX_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_MATRIX_CONFORMANCE_H_

#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"

namespace pagemill::ops::conformance {

// For every kernel that supports `call` (inputs[0]: x, f32 [n, k]; its only output f32 [n, m]) and
// does not vary with the batch: the output has the same bits whether its rows are computed one by
// one, all at once by 1 and 3 threads, or in random pieces.
void CheckBatchInvariance(const OpDefinition& op, const device::Capabilities& caps,
                          const OpCall& call, Random& random);

// For every kernel that supports `call`: each output, a view of one of `results`, is written within
// its bounds and has the bits of a call with its matrix alone. The inputs are x and, for each
// output, equally many operands in the order of the outputs.
void CheckMatricesTogether(const OpDefinition& op, const device::Capabilities& caps,
                           const OpCall& call, const std::vector<TestTensor*>& results);

}  // namespace pagemill::ops::conformance

#endif  // PAGEMILL_CC_OPS_MATRIX_CONFORMANCE_H_
