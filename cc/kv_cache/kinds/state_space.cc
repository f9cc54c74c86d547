#include "cc/kv_cache/kinds/state_space.h"

#include <algorithm>

namespace pagemill::kv_cache {

int32_t StateSpace::NumBlocks(int32_t num_tokens, const RequestShape&) const {
  const int32_t all = (num_tokens + block_size_ - 1) / block_size_;
  if (checkpoints_ != StateCheckpoints::kNone) return all;
  return std::min(all, recent_states_ > 0 ? 0 : 1);
}

bool StateSpace::IsLandmark(int32_t index, const RequestShape& shape) const {
  const int32_t blocks = index + 1;
  return blocks == (shape.prompt_tokens - 1) / block_size_ ||
         blocks == shape.branch_tokens / block_size_;
}

bool StateSpace::Needs(int32_t index, TokenRange range, const RequestShape& shape) const {
  if (checkpoints_ == StateCheckpoints::kNone) return true;
  if (range.begin > 0 && index <= (range.begin - 1) / block_size_) {
    return index == (range.begin - 1) / block_size_;
  }
  if (checkpoints_ == StateCheckpoints::kEveryBoundary) return true;
  return index == (range.end - 1) / block_size_ || index == range.end / block_size_ - 1 ||
         IsLandmark(index, shape);
}

int32_t StateSpace::LongestPrefix(const GroupContent& content, int32_t max_blocks) const {
  if (checkpoints_ == StateCheckpoints::kNone) return 0;
  int32_t n = max_blocks;
  while (n > 0 && !content.Has(n - 1)) --n;
  return n;
}

int32_t StateSpace::MaxHeld(int32_t num_tokens, const RequestShape& shape,
                            const PlanBounds& bounds) const {
  const int32_t all = NumBlocks(num_tokens, shape);
  int64_t most = all;
  if (checkpoints_ == StateCheckpoints::kLastBoundary) {
    // The state to continue from and one not freed yet, the landmarks, and of each step the last
    // boundary and the end.
    most = 2 + 2 + int64_t{2} * bounds.steps;
  } else if (bounds.step_tokens > 0) {
    most = (int64_t{bounds.steps} * bounds.step_tokens + block_size_ - 1) / block_size_ + 3;
  }
  if (recent_states_ > 1) {
    // Boundaries that steps in flight may still reject.
    most += (int64_t{bounds.steps} * recent_states_ + block_size_ - 1) / block_size_;
  }
  return recent_states_ + static_cast<int32_t>(std::min<int64_t>(all, most));
}

CacheKind::Worth StateSpace::WorthAfterNext(int32_t index, const RequestShape& shape) const {
  if (checkpoints_ != StateCheckpoints::kLastBoundary || IsLandmark(index, shape)) {
    return Worth::kAll;
  }
  const bool generated = (index + 1) * block_size_ >= shape.prompt_tokens;
  return generated ? Worth::kNothing : Worth::kLittle;
}

CacheKind::Traits StateSpace::traits() const {
  const bool none = checkpoints_ == StateCheckpoints::kNone;
  return {.cacheable = !none,
          .prefixes_nest = false,
          .truncates = !none,
          .checkpoints = checkpoints_ == StateCheckpoints::kLastBoundary,
          .num_leading = recent_states_,
          .max_rejected_tokens = std::max(0, recent_states_ - 1)};
}

}  // namespace pagemill::kv_cache
