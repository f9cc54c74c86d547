// File: cc/ops/take_tokens/take_tokens.h
// Resolves the tokens of a step of which some were sampled by the step before, on the device.
//
//   inputs   ids      i32 [T]  a token; or, if negative, -1 - row: what `sampled` has for that row
//            sampled  i32 [L]  as `argmax` writes it
//   outputs  y        i32 [T]  y[t] = ids[t] >= 0 ? ids[t] : max(0, sampled[-1 - ids[t]])
//   aliasing       y may be ids
//
// Exact. Rows without a sampled token give token 0: their requests fail, but the step that already
// runs for them needs a token of the vocabulary.
#ifndef PAGEMILL_CC_OPS_TAKE_TOKENS_TAKE_TOKENS_H_
#define PAGEMILL_CC_OPS_TAKE_TOKENS_TAKE_TOKENS_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& TakeTokensOp();

namespace take_tokens {
void RunReference(const OpCall& call, KernelContext& context);
}  // namespace take_tokens

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_TAKE_TOKENS_TAKE_TOKENS_H_
