// File: cc/ops/head_linear/head_linear_conformance.h
// Conformance checks for every kernel of `head_linear`, for each type of weights and both
// orientations: results close to the reference, matrices that lie apart, odd sizes, padded and
// misaligned rows, and the same bits with 1 to 3 threads and however the rows are divided into
// calls.
#ifndef PAGEMILL_CC_OPS_HEAD_LINEAR_HEAD_LINEAR_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_HEAD_LINEAR_HEAD_LINEAR_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckHeadLinearConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_HEAD_LINEAR_HEAD_LINEAR_CONFORMANCE_H_
