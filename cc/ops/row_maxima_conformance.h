// File: cc/ops/row_maxima_conformance.h
// Conformance checks of RunRowMaxima() for every kernel of a product. Test code only.
//
//   CheckRowMaxima({.op = op, .caps = caps, .call = call, .x = x, .bias = bias, .y = y});
//
// For every kernel that supports the call, with 1 to 3 threads and several numbers of columns: the
// largest of the logits that Kernel::run writes, bit for bit, and the lowest column that has it,
// over random logits, many equal ones, -inf, +inf and NaN; run_row_maxima writes nothing to the
// output and stays within the workspace.
#ifndef PAGEMILL_CC_OPS_ROW_MAXIMA_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_ROW_MAXIMA_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

struct RowMaximaCase {
  const OpDefinition& op;
  const device::Capabilities& caps;
  const OpCall& call;          // with one matrix
  conformance::TestTensor& x;  // the call's operands of these names; their contents are replaced
  conformance::TestTensor& bias;
  conformance::TestTensor& y;
  bool random_only = false;  // for operands that are slow under emulation
};

void CheckRowMaxima(const RowMaximaCase& c);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ROW_MAXIMA_CONFORMANCE_H_
