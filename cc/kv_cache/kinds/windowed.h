// File: cc/kv_cache/kinds/windowed.h
// Kinds whose layers read the last part of the context only: sliding windows and chunks. Blocks in front of that part go back to the pool while the request runs (what they hold
// stays in the prefix cache), and a prefix is usable where the part before its end is there.
#ifndef PAGEMILL_CC_KV_CACHE_KINDS_WINDOWED_H_
#define PAGEMILL_CC_KV_CACHE_KINDS_WINDOWED_H_

#include <algorithm>
#include <cstdint>

#include "cc/kv_cache/kinds/cache_kind.h"

namespace pagemill::kv_cache {

class WindowedAttention : public CacheKind {
 public:
  int32_t NumBlocks(int32_t num_tokens, const RequestShape& shape) const override;
  bool Needs(int32_t index, TokenRange range, const RequestShape& shape) const override;
  int32_t LongestPrefix(const GroupContent& content, int32_t max_blocks) const override;
  int32_t MaxHeld(int32_t num_tokens, const RequestShape& shape,
                  const PlanBounds& bounds) const override;
  Traits traits() const override { return {.prefixes_nest = false}; }

 protected:
  WindowedAttention(int32_t block_size, int32_t window_tokens)
      : block_size_(block_size), window_tokens_(window_tokens) {}
  int32_t window_tokens() const { return window_tokens_; }

 private:
  // The first token that the token at `position` reads; at most window_tokens - 1 before it.
  virtual int32_t FirstToken(int32_t position) const = 0;

  const int32_t block_size_;     // tokens
  const int32_t window_tokens_;  // at least 1
};

// A token reads itself and the window_tokens - 1 tokens before it.
class SlidingWindowAttention final : public WindowedAttention {
 public:
  SlidingWindowAttention(int32_t block_size, int32_t window_tokens)
      : WindowedAttention(block_size, window_tokens) {}

 private:
  int32_t FirstToken(int32_t position) const override {
    return std::max(0, position - window_tokens() + 1);
  }
};

// The context is divided into chunks of `chunk_tokens`, and a token reads the tokens of its own
// chunk that are before it, and itself.
class ChunkedLocalAttention final : public WindowedAttention {
 public:
  ChunkedLocalAttention(int32_t block_size, int32_t chunk_tokens)
      : WindowedAttention(block_size, chunk_tokens) {}

 private:
  int32_t FirstToken(int32_t position) const override {
    return position / window_tokens() * window_tokens();
  }
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_KINDS_WINDOWED_H_
