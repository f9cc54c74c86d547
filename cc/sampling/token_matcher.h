// File: cc/sampling/token_matcher.h
// What a constraint on the output of one request (a grammar, a schema, a choice) is to sampling:
// which tokens may come next, given those that came.
//
//   PM_ASSIGN_OR_RETURN(int32_t rows, FillDraftMasks(*matcher, drafts, masks));  // masks of a step
//   ... the step samples `tokens` of the request with these masks ...
//   for (int32_t token : tokens) {
//     if (!matcher->Accept(token)) return Internal("the matcher refuses a token that it allowed");
//   }
//
// A fake for tests: cc/sampling/testing/bracket_matcher.h.
#ifndef PAGEMILL_CC_SAMPLING_TOKEN_MATCHER_H_
#define PAGEMILL_CC_SAMPLING_TOKEN_MATCHER_H_

#include <cstdint>
#include <span>

#include "cc/base/status.h"

namespace pagemill::sampling {

// The text begins empty: prompt tokens are not part of it.
//
// Obligations of an implementer:
// 1. FillMask() writes every word of the mask (token_mask.h) of the token that comes next, and
//    changes nothing that another call can see. Not OK: the request fails with this status.
// 2. Accept() returns whether the token may come next, which is what FillMask() says of it. If so
//    the matcher advances, else it stays as it is. Tokens outside the vocabulary are refused.
// 3. Rollback() takes the last `num_tokens` accepted tokens back, as if they never came; 0 <=
//    num_tokens <= tokens accepted and not taken back. At least as many as a step verifies drafts
//    can be taken back.
// 4. A matcher that accepted an end-of-sequence token has ended: it allows end-of-sequence tokens
//    and nothing else. So a mask is never empty because the text ended; the caller drops what comes
//    behind an end. If neither the end nor any other token may come, the mask is empty, and the
//    request fails when its token is sampled.
// 5. Calls depend on the tokens accepted before and on nothing else.
//
// Thread safety: FillMask() may run on another thread than the engine's while the forward pass
// runs, and so may FillDraftMasks(), which calls all three; calls of the same matcher are never
// concurrent. Different matchers are used concurrently: what they share is their own concern.
class TokenMatcher {
 public:
  virtual ~TokenMatcher() = default;
  virtual Status FillMask(std::span<uint32_t> mask) = 0;
  virtual bool Accept(int32_t token_id) = 0;
  virtual void Rollback(int32_t num_tokens) = 0;
};

// The masks of a request's rows in a step that verifies `drafts`: row i is that of the token behind
// drafts[0, i). `masks` holds drafts.size() + 1 rows of equally many words, one after the other.
// Returns how many rows were filled: one more than the matcher accepts of the drafts. The rows
// after those are not written and not needed: the mask before the refused draft excludes it, so
// that sampling ends there. The matcher ends where it began, also if a FillMask() fails.
StatusOr<int32_t> FillDraftMasks(TokenMatcher& matcher, std::span<const int32_t> drafts,
                                 std::span<uint32_t> masks);

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_TOKEN_MATCHER_H_
