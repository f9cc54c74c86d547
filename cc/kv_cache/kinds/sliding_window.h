// File: cc/kv_cache/kinds/sliding_window.h
// Sliding window attention: a token reads itself and the window_tokens - 1 tokens before it.
#ifndef PAGEMILL_CC_KV_CACHE_KINDS_SLIDING_WINDOW_H_
#define PAGEMILL_CC_KV_CACHE_KINDS_SLIDING_WINDOW_H_

#include <cstdint>

#include "cc/kv_cache/kinds/cache_kind.h"
#include "cc/kv_cache/kinds/windowed.h"

namespace pagemill::kv_cache {

class SlidingWindowAttention final : public WindowedAttention {
 public:
  SlidingWindowAttention(int32_t block_size, int32_t window_tokens)
      : WindowedAttention(block_size, window_tokens) {}

 private:
  int32_t FirstToken(int32_t position) const override;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_KINDS_SLIDING_WINDOW_H_
