// File: cc/kv_cache/eviction/miniature_cache.h
// What the prefix cache would hit with a given share of protected content: a model of the cache
// with a sample of the contents and as small a part of the pool (C. Waldspurger, T. Saemundsson,
// I. Ahmad, N. Park, "Cache Modeling and Optimization using Miniature Simulations", USENIX ATC
// 2017).
//
//   MiniatureCache cache(/*capacity=*/1000, /*protected_quarters=*/2);
//   bool hit = cache.Use(block.hash, block.group, /*max_blocks=*/900);
//
// Use() is O(1); nothing is allocated after construction. Thread safety: none.
#ifndef PAGEMILL_CC_KV_CACHE_EVICTION_MINIATURE_CACHE_H_
#define PAGEMILL_CC_KV_CACHE_EVICTION_MINIATURE_CACHE_H_

#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/block_list.h"
#include "cc/kv_cache/eviction/segmented_lru.h"
#include "cc/kv_cache/prefix_cache.h"

namespace pagemill::kv_cache {

class MiniatureCache {
 public:
  // `capacity` (at least 1) is in blocks; SegmentedLru protects so many quarters of `max_blocks`.
  MiniatureCache(int32_t capacity, int32_t protected_quarters);
  // Not copied or moved: its parts refer to its blocks.
  MiniatureCache(const MiniatureCache&) = delete;
  MiniatureCache& operator=(const MiniatureCache&) = delete;

  // A request uses this content; true if it is in the cache. If it is not, it enters, and up to two
  // others leave such that `max_blocks` (1 to capacity) remain.
  bool Use(const BlockHash& hash, GroupId group, int32_t max_blocks);

  Status CheckIntegrity() const;

 private:
  BlockId Enter(const BlockHash& hash, GroupId group, int32_t max_blocks);

  const int32_t protected_quarters_;
  std::vector<Block> blocks_;
  BlockList empty_;
  PrefixCache cache_;
  SegmentedLru order_;  // of all cached blocks
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_EVICTION_MINIATURE_CACHE_H_
