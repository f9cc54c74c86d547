// File: cc/kv_cache/kinds/full.h
// Full attention: every token of the context is read, so every block stays until the request ends,
// and a prefix is usable up to the first block that is missing. The same holds for multi-head latent
// attention ("mla"), which keeps one compressed vector a token: the group's block_size and
// pages_per_block say how large its pages are.
#ifndef PAGEMILL_CC_KV_CACHE_KINDS_FULL_H_
#define PAGEMILL_CC_KV_CACHE_KINDS_FULL_H_

#include <cstdint>

#include "cc/kv_cache/kinds/cache_kind.h"

namespace pagemill::kv_cache {

class FullAttention final : public CacheKind {
 public:
  explicit FullAttention(int32_t block_size) : block_size_(block_size) {}

  int32_t NumBlocks(int32_t num_tokens, const RequestShape& shape) const override;
  bool Needs(int32_t, TokenRange, const RequestShape&) const override { return true; }
  int32_t LongestPrefix(const GroupContent& content, int32_t max_blocks) const override;

 private:
  const int32_t block_size_;  // tokens
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_KINDS_FULL_H_
