// File: cc/ops/take_tokens/take_tokens_conformance.h
// Conformance checks for every kernel of `take_tokens` that supports the call: no tokens, all and
// some of them sampled, rows without a token, misaligned operands, an output that aliases the ids;
// bit for bit, since the contract is exact.
#ifndef PAGEMILL_CC_OPS_TAKE_TOKENS_TAKE_TOKENS_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_TAKE_TOKENS_TAKE_TOKENS_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckTakeTokensConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_TAKE_TOKENS_TAKE_TOKENS_CONFORMANCE_H_
