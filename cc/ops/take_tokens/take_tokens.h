// File: cc/ops/take_tokens/take_tokens.h
// The tokens of a step of which some were sampled by the step before and are where that left them.
//
//   inputs   ids      i32 [T]  a token; or, if negative, -1 - row: what `sampled` has for that row
//            sampled  i32 [L]  as `argmax` writes it
//   outputs  y        i32 [T]  y[t] = ids[t] >= 0 ? ids[t] : max(0, sampled[-1 - ids[t]])
//   aliasing       y may be ids
//
// Exact. Rows from which no token was sampled count as token 0: their requests fail, but what is
// run for them meanwhile has to be a token of the vocabulary.
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
