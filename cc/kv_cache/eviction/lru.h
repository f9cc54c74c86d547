// File: cc/kv_cache/eviction/lru.h
// Evicts what was used least recently.
#ifndef PAGEMILL_CC_KV_CACHE_EVICTION_LRU_H_
#define PAGEMILL_CC_KV_CACHE_EVICTION_LRU_H_

#include <cstdint>
#include <vector>

#include "cc/kv_cache/block_list.h"
#include "cc/kv_cache/eviction/eviction_policy.h"

namespace pagemill::kv_cache {

class LruEviction final : public EvictionPolicy {
 public:
  explicit LruEviction(std::vector<Block>* blocks) : pages_(blocks) {}

  void Insert(BlockId id) override { pages_.PushBack(id); }
  void Remove(BlockId id) override { pages_.Remove(id); }
  BlockId Victim() const override { return pages_.front(); }
  Status CheckIntegrity(int32_t num_pages) const override;

 private:
  BlockList pages_;  // least recently used first
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_EVICTION_LRU_H_
