// File: cc/ops/select_tokens/select_tokens.h
// The tokens that a query of sparse attention attends to: the indexer of DeepSeek V3.2, which
// scores each cached token with small heads and keeps the best.
//
//   inputs   q        act [T, H, R]  the unrotated part of the index queries, 1 <= H <=
//                                    kMaxIndexHeads
//            rope     act [T, H, P]  the rotated part; or missing (a view of rank 0), P = 0
//            weights  f32 [T, H]     of the heads
//            cache    f32 or bf16 [pages, block_size / m, R + P], in which `latent_write` has
//                     stored the index keys of the request's tokens, the step's own included
//   outputs  chosen   i32 [T, K]     positions, ascending; -1 behind them if the query sees fewer
//   batch    query_start, seq_lens, block_table, block_size (also needed by the check)
//   attributes  choices = K, 1 to kMaxTokenChoices
//   aliasing    none
//
//   score[t] = sum_h weights[h] max(0, q_h c_t + rope_h k_t)     for t up to the query's position
//   chosen = the K tokens of the largest scores, all if there are no more
//
// If a row of the cache stands for m > 1 tokens (latent_cache.h), rows are chosen in place of
// tokens: row w, which stands for the tokens from w m on, if the query is at (w + 1) m - 1 or
// later.
//
// Scores have no scale: a positive one would not change the choice. Among equal scores the lower
// position wins; NaN counts as -infinity. Slots that a query does not see may hold anything.
//
// Result: the choice of a query depends on its q, rope and weights, its position and the keys it
// sees: not on the other queries and requests of the call, on how the prompt was divided into
// steps, or on threads.
//
// Error bound: each score is off by at most (R + P + H) 2^-24 times the sum of the absolute values
// of its products; tokens whose scores are closer than that may be chosen in another order. Exact
// if all products and sums are.
//
// Source: "DeepSeek-V3.2: Pushing the Frontier of Open Large Language Models", section 2.1.
//
// Kernels: "avx512", "avx2", "portable", "reference" (in double).
#ifndef PAGEMILL_CC_OPS_SELECT_TOKENS_SELECT_TOKENS_H_
#define PAGEMILL_CC_OPS_SELECT_TOKENS_SELECT_TOKENS_H_

#include <cstdint>

#include "cc/ops/op.h"

namespace pagemill::ops {

inline constexpr int64_t kMaxIndexHeads = 1024;
inline constexpr int64_t kMaxTokenChoices = 65536;

const OpDefinition& SelectTokensOp();

namespace select_tokens {
void RunReference(const OpCall& call, KernelContext& context);
int64_t ReferenceWorkspaceBytes(const OpCall& call, int32_t num_threads);
}  // namespace select_tokens

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SELECT_TOKENS_SELECT_TOKENS_H_
