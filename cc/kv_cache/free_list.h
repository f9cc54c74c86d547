// File: cc/kv_cache/free_list.h
// The blocks that nobody holds, as a doubly linked list through the blocks themselves. The null
// block is the sentinel of the ring, so no operation has a special case. All operations are O(1);
// nothing is allocated.
//
//   FreeList list(&blocks);       // blocks[0] is the null block; all others start outside the list
//   list.PushBack(BlockId(3));
//   BlockId next = list.PopFront();
#ifndef PAGEMILL_CC_KV_CACHE_FREE_LIST_H_
#define PAGEMILL_CC_KV_CACHE_FREE_LIST_H_

#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/block.h"

namespace pagemill::kv_cache {

class FreeList {
 public:
  // `blocks` outlives the list and keeps its size.
  explicit FreeList(std::vector<Block>* blocks);

  int32_t size() const { return size_; }
  // The block that PopFront() would take; the null block where the list is empty.
  BlockId front() const { return (*blocks_)[kNullBlock.value()].next; }

  void PushFront(BlockId id) { InsertBefore(front(), id); }
  void PushBack(BlockId id) { InsertBefore(kNullBlock, id); }
  BlockId PopFront();       // not where the list is empty
  void Remove(BlockId id);  // only a block of the list

  // Links agree, members have no references, others are not members. O(blocks).
  Status CheckIntegrity() const;

 private:
  void InsertBefore(BlockId successor, BlockId id);

  std::vector<Block>* blocks_;
  int32_t size_ = 0;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_FREE_LIST_H_
