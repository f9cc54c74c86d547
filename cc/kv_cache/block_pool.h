// File: cc/kv_cache/block_pool.h
// All blocks of the KV cache: which are free, who refers to them, and which hold content that can
// be reused. Block 0 is the null block and never handed out.
//
// A block that nobody refers to is free, but keeps its content and its hash until it is handed out
// again, so a later request with the same prefix can take it back. Free blocks are handed out in
// this order:
//   1. blocks without reusable content that were in use before, the latest first: their memory is
//      resident and warm, and nothing is lost;
//   2. blocks that were never used, by id: they make the process larger, but taking a cached block
//      instead would throw away work while there is room;
//   3. blocks with reusable content, least recently used first.
// One list gives this order: released blocks without a hash go to its front, those with a hash to
// its back, and it starts with all blocks by id. Among cached blocks it is exact LRU.
//
//   BlockPool pool(num_blocks);
//   BlockId id = pool.Allocate();          // reference count 1
//   pool.Cache(id, hash, GroupId(0));      // once its content is computed
//   pool.Release(id);
//   std::optional<BlockId> hit = pool.Find(hash, GroupId(0));
//   if (hit) pool.AddReference(*hit);      // takes it out of the free list
//
// All operations but Reset and CheckIntegrity are O(1). Thread safety: none.
#ifndef PAGEMILL_CC_KV_CACHE_BLOCK_POOL_H_
#define PAGEMILL_CC_KV_CACHE_BLOCK_POOL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/block.h"
#include "cc/kv_cache/free_list.h"
#include "cc/kv_cache/prefix_cache.h"

namespace pagemill::kv_cache {

class BlockPool {
 public:
  // `num_blocks` includes the null block.
  explicit BlockPool(int32_t num_blocks);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  int32_t num_blocks() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t num_usable() const { return num_blocks() - 1; }
  int32_t num_free() const { return free_.size(); }
  int32_t num_cached() const { return cache_.size(); }
  int64_t num_evictions() const { return num_evictions_; }
  int32_t ref_count(BlockId id) const { return blocks_[id.value()].ref_count; }

  // A free block, its former content forgotten. Only where num_free() > 0.
  BlockId Allocate();
  void AddReference(BlockId id);
  void Release(BlockId id);

  // Makes the content of a block that is in use reusable. Where another block has the same content
  // already, one of the two stays cached: the other where it is in use, else this one, which will
  // be used later.
  void Cache(BlockId id, const BlockHash& hash, GroupId group);
  std::optional<BlockId> Find(const BlockHash& hash, GroupId group) const {
    return cache_.Find(hash, group);
  }
  // Forgets all reusable content; references stay. O(blocks).
  void Reset();

  Status CheckIntegrity() const;

 private:
  void Forget(BlockId id);

  std::vector<Block> blocks_;
  FreeList free_;
  PrefixCache cache_;
  int64_t num_evictions_ = 0;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_BLOCK_POOL_H_
