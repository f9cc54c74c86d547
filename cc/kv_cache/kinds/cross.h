// File: cc/kv_cache/kinds/cross.h
// Cross attention: the decoder reads keys and values made from the encoder's output, one per media
// token. The blocks are there from the first step to the end of the request. What they hold follows
// from the media, not from the tokens before it, so it is not shared, and neither is what the
// decoder computed with it.
#ifndef PAGEMILL_CC_KV_CACHE_KINDS_CROSS_H_
#define PAGEMILL_CC_KV_CACHE_KINDS_CROSS_H_

#include <cstdint>

#include "cc/kv_cache/kinds/cache_kind.h"

namespace pagemill::kv_cache {

class CrossAttention final : public CacheKind {
 public:
  explicit CrossAttention(int32_t block_size) : block_size_(block_size) {}

  int32_t NumBlocks(int32_t num_tokens, const RequestShape& shape) const override;
  bool Needs(int32_t, TokenRange, const RequestShape&) const override { return true; }
  int32_t LongestPrefix(const GroupContent&, int32_t) const override { return 0; }
  Traits traits() const override { return {.cacheable = false}; }

 private:
  const int32_t block_size_;  // media tokens
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_KINDS_CROSS_H_
