// File: cc/kv_cache/prefix_cache.h
// Which block holds the content with a given hash. At most one block per (hash, group).
//
// An open-addressing table (linear probing, at most half full) of block ids; the keys are the
// hashes in the blocks, of which the table has a part, so that a search reads no block but the one
// it finds. 16 to 32 bytes a block, sized once, never allocates again.
//
//   PrefixCache cache(&blocks);
//   blocks[3].hash = hash;
//   cache.Insert(BlockId(3));
//   cache.Find(hash, GroupId(0));  // 3
#ifndef PAGEMILL_CC_KV_CACHE_PREFIX_CACHE_H_
#define PAGEMILL_CC_KV_CACHE_PREFIX_CACHE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/block.h"

namespace pagemill::kv_cache {

class PrefixCache {
 public:
  // `blocks` outlives the cache and keeps its size.
  explicit PrefixCache(const std::vector<Block>* blocks);

  int32_t size() const { return size_; }
  std::optional<BlockId> Find(const BlockHash& hash, GroupId group) const;

  // The block's hash and group are set, and no other block with them is in the cache.
  void Insert(BlockId id);
  // The block is in the cache; its hash is still what it was when inserted.
  void Erase(BlockId id);
  void Clear();

  // Every entry can be found, and every block with a hash has an entry. O(blocks).
  Status CheckIntegrity() const;

 private:
  struct Slot {
    BlockId id;        // the null block = empty
    uint32_t tag = 0;  // of the key
  };
  static uint32_t Tag(const BlockHash& hash) { return static_cast<uint32_t>(hash.words[1]); }
  size_t Home(const BlockHash& hash) const { return hash.words[0] & mask_; }
  // The slot of the block with this key, or the empty slot where the search ends.
  size_t Probe(const BlockHash& hash, GroupId group) const;

  const std::vector<Block>* blocks_;
  std::vector<Slot> slots_;  // size is a power of two
  size_t mask_;
  int32_t size_ = 0;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_PREFIX_CACHE_H_
