// File: cc/ops/select_tokens/best_tokens.h
// The best of many scored tokens, in memory for twice as many as are kept: whenever it is full, the
// worse half is dropped.
//
//   BestTokens best(buffer, choices);                  // buffer: ScoredToken[2 * choices]
//   for (...) best.Offer({score, position});
//   for (const ScoredToken& token : best.Finish()) ... // at most `choices`, in any order
//
// Cost: O(1) a token on average.
#ifndef PAGEMILL_CC_OPS_SELECT_TOKENS_BEST_TOKENS_H_
#define PAGEMILL_CC_OPS_SELECT_TOKENS_BEST_TOKENS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace pagemill::ops::select_tokens {

struct ScoredToken {
  float score;
  int32_t position;
};

// Whether `a` is chosen in front of `b`; a total order, so that the choice does not depend on the
// order in which tokens are offered.
inline bool Precedes(const ScoredToken& a, const ScoredToken& b) {
  return a.score > b.score || (a.score == b.score && a.position < b.position);
}

class BestTokens {
 public:
  BestTokens(ScoredToken* buffer, int64_t choices) : tokens_(buffer), choices_(choices) {}

  void Offer(ScoredToken token) {
    if (std::isnan(token.score)) token.score = -std::numeric_limits<float>::infinity();
    if (has_worst_ && !Precedes(token, worst_)) return;
    tokens_[count_++] = token;
    if (count_ == 2 * choices_) Drop();
  }

  std::span<const ScoredToken> Finish() {
    if (count_ > choices_) Drop();
    return {tokens_, static_cast<size_t>(count_)};
  }

 private:
  void Drop() {
    std::nth_element(tokens_, tokens_ + choices_ - 1, tokens_ + count_, Precedes);
    count_ = choices_;
    worst_ = tokens_[choices_ - 1];
    has_worst_ = true;
  }

  ScoredToken* tokens_;
  int64_t choices_;
  int64_t count_ = 0;
  ScoredToken worst_ = {};  // of those kept by the last Drop()
  bool has_worst_ = false;
};

}  // namespace pagemill::ops::select_tokens

#endif  // PAGEMILL_CC_OPS_SELECT_TOKENS_BEST_TOKENS_H_
