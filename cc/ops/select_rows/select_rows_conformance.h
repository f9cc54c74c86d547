// File: cc/ops/select_rows/select_rows_conformance.h
// Conformance checks for every kernel of `select_rows` that supports the call: empty input,
// repeated rows, misaligned and padded operands, 1 and 3 threads; bit for bit, since the contract
// is exact.
#ifndef PAGEMILL_CC_OPS_SELECT_ROWS_SELECT_ROWS_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_SELECT_ROWS_SELECT_ROWS_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckSelectRowsConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SELECT_ROWS_SELECT_ROWS_CONFORMANCE_H_
