#include "cc/sampling/draft_masks.h"

#include <bit>

namespace pagemill::sampling {
namespace {

bool HasOneToken(std::span<const uint32_t> mask) {
  int num_tokens = 0;
  for (const uint32_t word : mask) {
    num_tokens += std::popcount(word);
    if (num_tokens > 1) return false;
  }
  return num_tokens == 1;
}

}  // namespace

StatusOr<int32_t> FillDraftMasks(step::TokenMatcher& matcher, std::span<const int32_t> drafts,
                                 std::span<uint32_t> masks, ForcedTokens* forced) {
  const size_t num_rows = drafts.size() + 1;
  PAGEMILL_CHECK(masks.size() % num_rows == 0);
  const size_t num_words = masks.size() / num_rows;
  size_t accepted = 0;
  Status status = matcher.FillMask(masks.first(num_words));
  while (status.ok() && accepted < drafts.size() && matcher.Accept(drafts[accepted])) {
    ++accepted;
    status = matcher.FillMask(masks.subspan(accepted * num_words, num_words));
  }
  forced->token_ids.clear();
  if (status.ok() && accepted == drafts.size() && forced->most > 1 &&
      HasOneToken(masks.last(num_words))) {
    matcher.AppendForced(forced->most, &forced->token_ids);
  }
  const auto num_accepted = static_cast<int32_t>(accepted);
  matcher.Rollback(num_accepted);
  if (!status.ok()) return status;
  return num_accepted + 1;
}

}  // namespace pagemill::sampling
