#include "cc/sampling/draft_masks.h"

namespace pagemill::sampling {

StatusOr<int32_t> FillDraftMasks(step::TokenMatcher& matcher, std::span<const int32_t> drafts,
                                 std::span<uint32_t> masks) {
  const size_t num_rows = drafts.size() + 1;
  PAGEMILL_CHECK(masks.size() % num_rows == 0);
  const size_t num_words = masks.size() / num_rows;
  size_t accepted = 0;
  Status status = matcher.FillMask(masks.first(num_words));
  while (status.ok() && accepted < drafts.size() && matcher.Accept(drafts[accepted])) {
    ++accepted;
    status = matcher.FillMask(masks.subspan(accepted * num_words, num_words));
  }
  const auto num_accepted = static_cast<int32_t>(accepted);
  matcher.Rollback(num_accepted);
  if (!status.ok()) return status;
  return num_accepted + 1;
}

}  // namespace pagemill::sampling
