// File: cc/kv_cache/kinds/encoder.h
// Kinds of attention that have to do with encoders. What they compute is not shared between
// requests.
#ifndef PAGEMILL_CC_KV_CACHE_KINDS_ENCODER_H_
#define PAGEMILL_CC_KV_CACHE_KINDS_ENCODER_H_

#include <cstdint>

#include "cc/kv_cache/kinds/cache_kind.h"

namespace pagemill::kv_cache {

// Cross attention: the decoder reads keys and values made from the encoder's output, one per media
// token. The blocks are there from the first step to the end of the request. What they hold follows
// from the media, not from the tokens before it, so neither it nor what the decoder computed with
// it can be reused by another request.
class CrossAttention final : public CacheKind {
 public:
  explicit CrossAttention(int32_t block_size) : block_size_(block_size) {}
  int32_t NumBlocks(int32_t num_tokens, const RequestShape& shape) const override {
    return num_tokens == 0 ? 0 : (shape.media_tokens + block_size_ - 1) / block_size_;
  }
  bool Needs(int32_t, TokenRange, const RequestShape&) const override { return true; }
  int32_t LongestPrefix(const GroupContent&, int32_t) const override { return 0; }
  Traits traits() const override { return {.cacheable = false}; }

 private:
  const int32_t block_size_;  // media tokens
};

// Attention of an encoder: every token reads every other one in the same step, so nothing is kept,
// and no prefix can be reused, because the result of a token depends on those after it.
class EncoderOnlyAttention final : public CacheKind {
 public:
  int32_t NumBlocks(int32_t, const RequestShape&) const override { return 0; }
  bool Needs(int32_t, TokenRange, const RequestShape&) const override { return false; }
  int32_t LongestPrefix(const GroupContent&, int32_t) const override { return 0; }
  Traits traits() const override { return {.cacheable = false}; }
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_KINDS_ENCODER_H_
