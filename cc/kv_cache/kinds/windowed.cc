#include "cc/kv_cache/kinds/windowed.h"

#include <algorithm>

namespace pagemill::kv_cache {

int32_t WindowedAttention::NumBlocks(int32_t num_tokens, const RequestShape&) const {
  return (num_tokens + block_size_ - 1) / block_size_;
}

bool WindowedAttention::Needs(int32_t index, TokenRange range, const RequestShape&) const {
  return index >= FirstToken(range.begin) / block_size_;
}

// From the end: where a block is missing, the prefix can only end at it.
int32_t WindowedAttention::LongestPrefix(const GroupContent& content, int32_t max_blocks) const {
  int32_t n = max_blocks;
  for (int32_t i = n - 1; n > 0 && i >= FirstToken(n * block_size_) / block_size_; --i) {
    if (!content.Has(i)) n = i;
  }
  return n;
}

int32_t WindowedAttention::MaxHeld(int32_t num_tokens, const RequestShape& shape,
                                   const PlanBounds& bounds) const {
  const int32_t all = NumBlocks(num_tokens, shape);
  if (bounds.step_tokens == 0) return all;
  // What the oldest step reads before its tokens, the tokens of all steps, and up to a block that
  // is not freed yet, because that happens when a block is full; anywhere within blocks.
  const int64_t span =
      window_tokens_ - 1 + int64_t{bounds.steps} * bounds.step_tokens + block_size_;
  return static_cast<int32_t>(std::min<int64_t>(all, (span + block_size_ - 1) / block_size_ + 1));
}

}  // namespace pagemill::kv_cache
