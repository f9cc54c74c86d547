#include "cc/kv_cache/kinds/sliding_window.h"

#include <algorithm>

namespace pagemill::kv_cache {

int32_t SlidingWindowAttention::FirstToken(int32_t position) const {
  return std::max(0, position - window_tokens() + 1);
}

}  // namespace pagemill::kv_cache
