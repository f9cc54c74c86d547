// File: cc/sampling/draft_masks.h
// Token masks of one request for a step that verifies drafts.
//
//   ForcedTokens forced{.most = 16};
//   PAGEMILL_ASSIGN_OR_RETURN(int32_t rows, FillDraftMasks(*matcher, drafts, masks, &forced));
//
// Costs `rows` calls of FillMask(), `drafts` calls of Accept(), one Rollback(), and one
// AppendForced() if the last mask leaves one token.
#ifndef PAGEMILL_CC_SAMPLING_DRAFT_MASKS_H_
#define PAGEMILL_CC_SAMPLING_DRAFT_MASKS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/step/token_matcher.h"

namespace pagemill::sampling {

// The tokens that must come behind all drafts of a step: the one that it samples there, and more.
struct ForcedTokens {
  size_t most = 0;
  std::vector<int32_t> token_ids = {};
};

// Fills the masks of a request's rows in a step that verifies `drafts`: row i is for the token
// after drafts[0, i). `masks` has drafts.size() + 1 rows with equal numbers of words. Returns the
// number of filled rows: one more than the number of drafts that the matcher accepts. Later rows
// are not written and not needed: the mask before the rejected draft excludes it, so sampling ends
// there. `forced` becomes what must follow if the matcher accepts all drafts, else empty. The
// matcher's state is restored, also if a FillMask() fails.
StatusOr<int32_t> FillDraftMasks(step::TokenMatcher& matcher, std::span<const int32_t> drafts,
                                 std::span<uint32_t> masks, ForcedTokens* forced);

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_DRAFT_MASKS_H_
