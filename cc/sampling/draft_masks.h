// File: cc/sampling/draft_masks.h
// The token masks of one request in a step that verifies drafts.
//
//   PAGEMILL_ASSIGN_OR_RETURN(int32_t rows, FillDraftMasks(*matcher, drafts, masks));
//
// Costs rows calls of FillMask(), drafts calls of Accept() and one Rollback().
#ifndef PAGEMILL_CC_SAMPLING_DRAFT_MASKS_H_
#define PAGEMILL_CC_SAMPLING_DRAFT_MASKS_H_

#include <cstdint>
#include <span>

#include "cc/base/status.h"
#include "cc/step/token_matcher.h"

namespace pagemill::sampling {

// The masks of a request's rows in a step that verifies `drafts`: row i is that of the token behind
// drafts[0, i). `masks` holds drafts.size() + 1 rows of equally many words, one after the other.
// Returns how many rows were filled: one more than the matcher accepts of the drafts. The rows
// after those are not written and not needed: the mask before the refused draft excludes it, so
// that sampling ends there. The matcher ends where it began, also if a FillMask() fails.
StatusOr<int32_t> FillDraftMasks(step::TokenMatcher& matcher, std::span<const int32_t> drafts,
                                 std::span<uint32_t> masks);

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_DRAFT_MASKS_H_
