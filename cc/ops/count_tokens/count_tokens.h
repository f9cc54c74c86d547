// File: cc/ops/count_tokens/count_tokens.h
// Keeps count of the tokens of requests on the device that samples them (../adjust_logits reads
// the counts). Device executors run it before tokens are drawn.
//
//   inputs   counts   i32 [S, V]  for each slot, what is counted of each token
//                                 (../sample/row_adjustments.h): written
//            cleared  i32 [C]     slots whose counts become 0 first
//            changes  i32 [N, 3]  the words of a TokenCount each: amount is added to
//                                 counts[slot, token]
//            ids      i32 [T]     what TokenOfInput() refers to
//   outputs  none
//   aliasing none
//
// Exact. No two changes have the same slot and token. Tokens outside [0, V), which only `ids` may
// have, are not counted.
#ifndef PAGEMILL_CC_OPS_COUNT_TOKENS_COUNT_TOKENS_H_
#define PAGEMILL_CC_OPS_COUNT_TOKENS_COUNT_TOKENS_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& CountTokensOp();

namespace count_tokens {
void RunReference(const OpCall& call, KernelContext& context);
}  // namespace count_tokens

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_COUNT_TOKENS_COUNT_TOKENS_H_
