#include "cc/kv_cache/free_list.h"

#include <string>

namespace pagemill::kv_cache {

FreeList::FreeList(std::vector<Block>* blocks) : blocks_(blocks) {
  (*blocks_)[kNullBlock.value()].prev = kNullBlock;
  (*blocks_)[kNullBlock.value()].next = kNullBlock;
}

void FreeList::InsertBefore(BlockId successor, BlockId id) {
  const BlockId predecessor = (*blocks_)[successor.value()].prev;
  Block& block = (*blocks_)[id.value()];
  block.prev = predecessor;
  block.next = successor;
  (*blocks_)[predecessor.value()].next = id;
  (*blocks_)[successor.value()].prev = id;
  ++size_;
}

BlockId FreeList::PopFront() {
  const BlockId id = front();
  PM_CHECK(id != kNullBlock);
  Remove(id);
  return id;
}

void FreeList::Remove(BlockId id) {
  const Block& block = (*blocks_)[id.value()];
  (*blocks_)[block.prev.value()].next = block.next;
  (*blocks_)[block.next.value()].prev = block.prev;
  --size_;
}

Status FreeList::CheckIntegrity() const {
  int32_t count = 0;
  BlockId before = kNullBlock;
  for (BlockId id = front(); id != kNullBlock; id = (*blocks_)[id.value()].next) {
    const Block& block = (*blocks_)[id.value()];
    if (block.prev != before) return Internal("free list: broken back link");
    if (block.ref_count != 0) return Internal("free list: a member has references");
    if (++count > size_) return Internal("free list: longer than its size");
    before = id;
  }
  if (count != size_) return Internal("free list: shorter than its size");
  int32_t unreferenced = 0;
  for (size_t i = 1; i < blocks_->size(); ++i) unreferenced += (*blocks_)[i].ref_count == 0;
  if (unreferenced != size_) {
    return Internal("free list: " + std::to_string(unreferenced) + " blocks without references, " +
                    std::to_string(size_) + " members");
  }
  return OkStatus();
}

}  // namespace pagemill::kv_cache
