// File: cc/grammar/transcript_matcher.h
// The rules by which Whisper writes what it hears: tokens that no text has, and timestamps in pairs
// that never decrease.
//
//   PAGEMILL_ASSIGN_OR_RETURN(request.new_token_matcher, TranscriptMatchers({
//       .vocab_size = 51866, .end = 50257, .suppressed = {1, 2, 50364}, .suppressed_first = {220},
//       .timestamp_begin = 50365, .max_first_timestamp = 50}));
//   request.sampling.timestamp_begin = 50365;  // the rule that needs logits
//
// Source: Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision", the classes
// SuppressBlank, SuppressTokens and ApplyTimestampRules of its code.
#ifndef PAGEMILL_CC_GRAMMAR_TRANSCRIPT_MATCHER_H_
#define PAGEMILL_CC_GRAMMAR_TRANSCRIPT_MATCHER_H_

#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/step/token_matcher.h"

namespace pagemill::grammar {

struct TranscriptRules {
  static constexpr int32_t kNoTimestamps = -1;

  int32_t vocab_size = 0;                      // columns of a row of logits
  int32_t end = 0;                             // ends an output; those below it are text
  std::vector<int32_t> suppressed = {};        // in no output
  std::vector<int32_t> suppressed_first = {};  // no output begins with one
  int32_t timestamp_begin = kNoTimestamps;     // that of 0 s; all from there on are timestamps
  int32_t max_first_timestamp = 0;             // an output begins with one of at most so many steps
};

// Makes the matchers of outputs that follow `rules`. Without timestamps only tokens are suppressed.
// With them an output begins with one; text stands between two; a timestamp that ends text is
// followed by an equal or a later one, or by the end; no other one is repeated. INVALID_ARGUMENT: a
// token is not in the vocabulary.
StatusOr<step::TokenMatcherFactory> TranscriptMatchers(TranscriptRules rules);

}  // namespace pagemill::grammar

#endif  // PAGEMILL_CC_GRAMMAR_TRANSCRIPT_MATCHER_H_
