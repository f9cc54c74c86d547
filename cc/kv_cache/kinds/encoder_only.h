// File: cc/kv_cache/kinds/encoder_only.h
// Attention of encoders: every token reads every other one in the same step, so nothing is kept.
// Nothing can be gone on from either: what a token gives depends on those after it.
#ifndef PAGEMILL_CC_KV_CACHE_KINDS_ENCODER_ONLY_H_
#define PAGEMILL_CC_KV_CACHE_KINDS_ENCODER_ONLY_H_

#include <cstdint>

#include "cc/kv_cache/kinds/cache_kind.h"

namespace pagemill::kv_cache {

class EncoderOnlyAttention final : public CacheKind {
 public:
  int32_t NumBlocks(int32_t, const RequestShape&) const override { return 0; }
  bool Needs(int32_t, TokenRange, const RequestShape&) const override { return false; }
  int32_t LongestPrefix(const GroupContent&, int32_t) const override { return 0; }
  Traits traits() const override { return {.cacheable = false}; }
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_KINDS_ENCODER_ONLY_H_
