// File: cc/step/token_matcher.h
// What a constraint on the output of one request (a grammar, a schema, a choice) is to sampling:
// which tokens may come next, given those that came.
//
//   request.new_token_matcher = [grammar]() -> StatusOr<std::unique_ptr<TokenMatcher>> {
//     return std::unique_ptr<TokenMatcher>(new GrammarMatcher(grammar));
//   };
//
// The runner fills masks while the forward pass runs, and lets the matcher accept the tokens that
// were sampled with them:
//
//   PAGEMILL_RETURN_IF_ERROR(matcher->FillMask(mask));
//   ... the step samples `token` with this mask ...
//   if (!matcher->Accept(token)) return Internal("the matcher refuses a token that it allowed");
//
// Where a mask leaves one token, those that must follow are the drafts of the next step:
//
//   matcher->AppendForced(most, &token_ids);
//
// A fake for tests: cc/sampling/testing/bracket_matcher.h.
#ifndef PAGEMILL_CC_STEP_TOKEN_MATCHER_H_
#define PAGEMILL_CC_STEP_TOKEN_MATCHER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cc/base/status.h"

namespace pagemill::step {

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
// 5. AppendForced() changes nothing that another call can see. Its tokens are a guess: a step
//    verifies them like other drafts.
// 6. Calls depend on the tokens accepted before and on nothing else.
//
// Thread safety: all of them, and the destructor, may run on other threads than the engine's; calls
// of the same matcher are never concurrent. Different matchers may be used concurrently: what they
// share is their own concern.
class TokenMatcher {
 public:
  virtual ~TokenMatcher() = default;
  virtual Status FillMask(std::span<uint32_t> mask) = 0;
  virtual bool Accept(int32_t token_id) = 0;
  virtual void Rollback(int32_t num_tokens) = 0;
  // Appends tokens, `most` at most, that have to come next, in this order; none if there is a
  // choice, or if it does not know.
  virtual void AppendForced(size_t most, std::vector<int32_t>* token_ids) {
    static_cast<void>(most), static_cast<void>(token_ids);
  }
};

// Makes the matcher of one output, before its first token. Called each time a request takes a slot
// in the runner: the tokens that a resumed request has already are accepted again. May be called on
// any thread, also concurrently. Not OK: the request fails with this status.
using TokenMatcherFactory = std::function<StatusOr<std::unique_ptr<TokenMatcher>>()>;

}  // namespace pagemill::step

#endif  // PAGEMILL_CC_STEP_TOKEN_MATCHER_H_
