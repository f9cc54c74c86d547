// File: cc/kv_cache/eviction/reuse.h
// Evicts content that was never reused before content that was, so that a
// burst of prompts that come once does not wash out the prefixes that come again.
//
// Segmented LRU: reused content is protected, up to 3/4 of the pool. Beyond that the least recently
// used protected page becomes like the others, as the youngest of them, and must be reused again to
// be protected again. So content that was popular once does not stay for ever.
#ifndef PAGEMILL_CC_KV_CACHE_EVICTION_REUSE_H_
#define PAGEMILL_CC_KV_CACHE_EVICTION_REUSE_H_

#include <cstdint>
#include <vector>

#include "cc/kv_cache/block_list.h"
#include "cc/kv_cache/eviction/eviction_policy.h"

namespace pagemill::kv_cache {

class ReuseEviction final : public EvictionPolicy {
 public:
  explicit ReuseEviction(std::vector<Block>* blocks);

  void Insert(BlockId id) override;
  void Remove(BlockId id) override;
  BlockId Victim() const override;
  Status CheckIntegrity(int32_t num_pages) const override;

 private:
  Block& At(BlockId id) { return (*blocks_)[id.value()]; }

  std::vector<Block>* blocks_;
  const int32_t max_protected_;   // pages
  BlockList others_, protected_;  // least recently used first
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_EVICTION_REUSE_H_
