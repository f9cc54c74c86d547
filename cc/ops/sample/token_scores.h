// File: cc/ops/sample/token_scores.h
// Log probabilities that are wanted of rows of logits (docs/sampling.md, 1), and what they are, as
// 32-bit words, which are copied to devices and back unchanged.
//
//   ScoredRow sampled = {.row = 2, .num_top = 5};
//   ScoredRow of_prompt = {.row = 3, .token_id = 42};
#ifndef PAGEMILL_CC_OPS_SAMPLE_TOKEN_SCORES_H_
#define PAGEMILL_CC_OPS_SAMPLE_TOKEN_SCORES_H_

#include <cstdint>

namespace pagemill::ops {

inline constexpr int32_t kMaxScoredTop = 20;

struct ScoredRow {
  int32_t row = 0;
  int32_t token_id = -1;  // -1: the one that is chosen from the row
  int32_t num_top = 0;    // most likely tokens that are wanted, 0 to kMaxScoredTop
  // Index of a copy of the row from before it was changed; -1: it was not. Set by the executor.
  int32_t copy = -1;
};
inline constexpr int64_t kScoredRowWords = sizeof(ScoredRow) / sizeof(int32_t);
static_assert(sizeof(ScoredRow) == 4 * sizeof(int32_t));

struct TokenScores {
  float logprob;  // of the token: natural logarithm
  int32_t rank;   // tokens with a strictly larger logit, plus one
  // The first num_top, or as many as there are tokens: the most likely first, then by id.
  int32_t top_ids[kMaxScoredTop];
  float top_logprobs[kMaxScoredTop];
};
inline constexpr int64_t kTokenScoresWords = sizeof(TokenScores) / sizeof(int32_t);
static_assert(sizeof(TokenScores) == (2 + 2 * kMaxScoredTop) * sizeof(int32_t));

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SAMPLE_TOKEN_SCORES_H_
