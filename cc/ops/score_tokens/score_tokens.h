// File: cc/ops/score_tokens/score_tokens.h
// Log probabilities and ranks of tokens, and the most likely tokens, of rows of logits
// (docs/sampling.md, 1). Device executors run it behind `draw_tokens`.
//
//   inputs   x        f32 [L, V]
//            copies   f32 [C, V]    rows from before they were changed
//            columns  i32 [L]       the token chosen from each row; -1: none
//            scored   i32 [N, 4]    the words of a ScoredRow each (../sample/token_scores.h)
//   outputs  y        i32 [N, 42]   the words of a TokenScores each
//   aliasing none
//
// For row x[row], or copies[copy] if copy >= 0, and token_id, or columns[row] if token_id < 0:
//
//   logprob = r[token] - log(sum over v of e^r[v]); likewise of the num_top largest logits
//
// Entries behind num_top, or V, are undefined. So is all of a row with a NaN, +inf or no finite
// logit, and logprob and rank without a token: nothing is read outside of the row.
//
// Error bounds: ranks and tokens are exact; a log probability is off by 2e-6 + V * 2^-40 and its
// own rounding at most: the kernels add up whole numbers, 2^-40 of the largest exponential each, of
// exponentials in fp32.
#ifndef PAGEMILL_CC_OPS_SCORE_TOKENS_SCORE_TOKENS_H_
#define PAGEMILL_CC_OPS_SCORE_TOKENS_SCORE_TOKENS_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& ScoreTokensOp();

namespace score_tokens {
void RunReference(const OpCall& call, KernelContext& context);
}  // namespace score_tokens

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SCORE_TOKENS_SCORE_TOKENS_H_
