// File: cc/kv_cache/block_list.h
// A doubly linked list of blocks through the blocks themselves. Several lists may share the blocks;
// a block is in one of them at most. All operations are O(1); nothing is allocated.
//
//   BlockList list(&blocks);
//   list.PushBack(BlockId(3));
//   list.Remove(list.front());
#ifndef PAGEMILL_CC_KV_CACHE_BLOCK_LIST_H_
#define PAGEMILL_CC_KV_CACHE_BLOCK_LIST_H_

#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/block.h"

namespace pagemill::kv_cache {

class BlockList {
 public:
  // `blocks` outlives the list and keeps its size. blocks[0] is the null block, never a member.
  explicit BlockList(std::vector<Block>* blocks) : blocks_(blocks) {}

  int32_t size() const { return size_; }
  // The null block where the list is empty, or ends.
  BlockId front() const { return front_; }
  BlockId After(BlockId id) const { return (*blocks_)[id.value()].next; }

  void PushFront(BlockId id);
  void PushBack(BlockId id);
  void Remove(BlockId id);  // only a block of the list

  // Links agree, and members have no references. O(size).
  Status CheckIntegrity() const;

 private:
  Block& At(BlockId id) { return (*blocks_)[id.value()]; }

  std::vector<Block>* blocks_;
  BlockId front_, back_;  // the null block where the list is empty
  int32_t size_ = 0;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_BLOCK_LIST_H_
