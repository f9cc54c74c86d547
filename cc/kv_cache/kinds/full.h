// File: cc/kv_cache/kinds/full.h
// Full attention: every token of the context is read, so every block stays until the request ends,
// and a prefix is usable up to the first block that is missing.
#ifndef PAGEMILL_CC_KV_CACHE_KINDS_FULL_H_
#define PAGEMILL_CC_KV_CACHE_KINDS_FULL_H_

#include "cc/kv_cache/kinds/cache_kind.h"

namespace pagemill::kv_cache {

class FullAttention final : public CacheKind {
 public:
  explicit FullAttention(int32_t block_size) : block_size_(block_size) {}

  int32_t NumBlocks(int32_t num_tokens) const override {
    return (num_tokens + block_size_ - 1) / block_size_;
  }
  void FindPrefix(std::span<const BlockHash> hashes, GroupId group, const BlockPool& pool,
                  std::vector<BlockId>* found) const override;

 private:
  int32_t block_size_;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_KINDS_FULL_H_
