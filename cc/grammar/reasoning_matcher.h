// File: cc/grammar/reasoning_matcher.h
// A constraint that begins behind a model's reasoning, which is free.
//
//   factory = BehindReasoning(std::move(factory), {.closers = {151668}, .begins_within = true});
#ifndef PAGEMILL_CC_GRAMMAR_REASONING_MATCHER_H_
#define PAGEMILL_CC_GRAMMAR_REASONING_MATCHER_H_

#include <cstdint>
#include <vector>

#include "cc/step/token_matcher.h"

namespace pagemill::grammar {

struct Reasoning {
  std::vector<int32_t> openers = {};  // may come first, if the output does not begin within it
  std::vector<int32_t> closers = {};  // behind one of these the constraint holds
  bool begins_within = false;
};

step::TokenMatcherFactory BehindReasoning(step::TokenMatcherFactory constraint,
                                          Reasoning reasoning);

}  // namespace pagemill::grammar

#endif  // PAGEMILL_CC_GRAMMAR_REASONING_MATCHER_H_
