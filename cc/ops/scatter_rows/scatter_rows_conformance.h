// File: cc/ops/scatter_rows/scatter_rows_conformance.h
// Conformance checks for every kernel of `scatter_rows`, bit for bit, since the contract is exact:
// no rows at all, every row replaced, misaligned and padded operands, an output that aliases x.
#ifndef PAGEMILL_CC_OPS_SCATTER_ROWS_SCATTER_ROWS_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_SCATTER_ROWS_SCATTER_ROWS_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckScatterRowsConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SCATTER_ROWS_SCATTER_ROWS_CONFORMANCE_H_
