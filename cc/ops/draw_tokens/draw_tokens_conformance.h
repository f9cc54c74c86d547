// File: cc/ops/draw_tokens/draw_tokens_conformance.h
// Conformance checks for every kernel of `draw_tokens` that supports the call: empty input, rows
// with and without a temperature side by side, every limit alone and with others, equal logits,
// excluded tokens, rows without a largest element, misaligned and padded rows, an output that
// aliases the columns, 1 and 3 threads.
#ifndef PAGEMILL_CC_OPS_DRAW_TOKENS_DRAW_TOKENS_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_DRAW_TOKENS_DRAW_TOKENS_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckDrawTokensConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_DRAW_TOKENS_DRAW_TOKENS_CONFORMANCE_H_
