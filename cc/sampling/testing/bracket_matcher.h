// File: cc/sampling/testing/bracket_matcher.h
// A TokenMatcher for tests: the text is balanced in (), [] and {}, nested at most max_depth deep.
// Other characters are allowed anywhere.
//
//   BracketMatcher matcher({.vocabulary = {"(", ")", "x", "</s>"}, .eos_token_id = 3});
//   matcher.Accept(0);  // "("
//   matcher.Accept(3);  // false: not balanced yet
#ifndef PAGEMILL_CC_SAMPLING_TESTING_BRACKET_MATCHER_H_
#define PAGEMILL_CC_SAMPLING_TESTING_BRACKET_MATCHER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/step/token_matcher.h"

namespace pagemill::sampling {

struct BracketMatcherOptions {
  std::vector<std::string> vocabulary;  // the text of each token; an empty one is never allowed
  int32_t eos_token_id = 0;             // allowed once every bracket is closed; its text is unused
  int32_t max_depth = 8;                // open brackets
};

class BracketMatcher final : public step::TokenMatcher {
 public:
  explicit BracketMatcher(BracketMatcherOptions options);

  Status FillMask(std::span<uint32_t> mask) override;
  bool Accept(int32_t token_id) override;
  void Rollback(int32_t num_tokens) override;

 private:
  struct State {
    std::string open;  // brackets not closed yet, outermost first
    bool ended = false;
  };
  // The state after the token; empty if it is not allowed next.
  std::optional<State> After(int32_t token_id) const;

  const BracketMatcherOptions options_;
  std::vector<State> states_;  // before the first token, and after each accepted one
};

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_TESTING_BRACKET_MATCHER_H_
