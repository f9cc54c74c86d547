// File: cc/kv_cache/eviction/segmented_lru.h
// Evicts content that was never reused before content that was, so that a burst of prompts that
// occur once does not evict the prefixes that are used again.
//
// Segmented LRU (R. Karedla, J. S. Love, B. G. Wherry, IEEE Computer 27(3), 1994): reused content
// is protected, up to `max_protected` pages. Beyond that the least recently used protected page
// becomes the youngest unprotected one, and must be reused again to be protected again. So content
// that was popular once does not stay forever. With max_protected = 0 this is LRU.
#ifndef PAGEMILL_CC_KV_CACHE_EVICTION_SEGMENTED_LRU_H_
#define PAGEMILL_CC_KV_CACHE_EVICTION_SEGMENTED_LRU_H_

#include <cstdint>
#include <vector>

#include "cc/kv_cache/block_list.h"
#include "cc/kv_cache/eviction/eviction_policy.h"

namespace pagemill::kv_cache {

class SegmentedLru final : public EvictionPolicy {
 public:
  SegmentedLru(std::vector<Block>* blocks, int32_t max_protected)
      : blocks_(blocks), max_protected_(max_protected), others_(blocks), protected_(blocks) {}

  int32_t size() const { return others_.size() + protected_.size(); }
  // Pages above a smaller bound lose their protection in the next insertions.
  void set_max_protected(int32_t pages) { max_protected_ = pages; }

  void Insert(BlockId id) override;
  void Remove(BlockId id) override;
  BlockId Victim() const override;
  Status CheckIntegrity(int32_t num_pages) const override;

 private:
  Block& At(BlockId id) { return (*blocks_)[id.value()]; }

  std::vector<Block>* blocks_;
  int32_t max_protected_;         // pages
  BlockList others_, protected_;  // least recently used first
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_EVICTION_SEGMENTED_LRU_H_
