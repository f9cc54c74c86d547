// File: cc/ops/mask_tokens/mask_tokens_conformance.h
// Conformance checks for every kernel of `mask_tokens` that supports the call: empty input, rows
// with and without a mask, masks that two rows share, that allow all, nothing and some, bits beyond
// the columns, NaN and infinities, misaligned and padded rows, an output that aliases x, 1 and 3
// threads; bit for bit, since the contract is exact.
#ifndef PAGEMILL_CC_OPS_MASK_TOKENS_MASK_TOKENS_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_MASK_TOKENS_MASK_TOKENS_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckMaskTokensConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_MASK_TOKENS_MASK_TOKENS_CONFORMANCE_H_
