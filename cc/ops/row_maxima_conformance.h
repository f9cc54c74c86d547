// File: cc/ops/row_maxima_conformance.h
// What RunRowMaxima() has to give for every kernel row of a product, on any machine. Test code
// only.
//
//   CheckRowMaxima({.op = op, .caps = caps, .call = call, .x = x, .bias = bias, .y = y});
//
// Checked for every row that supports the call, with 1 to 3 threads and for several numbers of
// columns: the largest logit, bit for bit, and the lowest column that has it, of the logits that
// the row's first form writes, over random logits, many equal ones, -inf, +inf and NaN; that
// nothing is written to the output by rows with a second form; and that their workspace is enough.
#ifndef PAGEMILL_CC_OPS_ROW_MAXIMA_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_ROW_MAXIMA_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

struct RowMaximaCase {
  const OpDefinition& op;
  const device::Capabilities& caps;
  const OpCall& call;          // of one matrix
  conformance::TestTensor& x;  // its operands of these names; what they hold is replaced
  conformance::TestTensor& bias;
  conformance::TestTensor& y;
  bool random_only = false;  // for operands that take long under emulation
};

void CheckRowMaxima(const RowMaximaCase& c);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ROW_MAXIMA_CONFORMANCE_H_
