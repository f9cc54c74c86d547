#include "cc/kv_cache/block_list.h"

namespace pagemill::kv_cache {

void BlockList::PushFront(BlockId id) {
  At(id).prev = kNullBlock;
  At(id).next = front_;
  (front_ == kNullBlock ? back_ : At(front_).prev) = id;
  front_ = id;
  ++size_;
}

void BlockList::PushBack(BlockId id) {
  At(id).prev = back_;
  At(id).next = kNullBlock;
  (back_ == kNullBlock ? front_ : At(back_).next) = id;
  back_ = id;
  ++size_;
}

void BlockList::Remove(BlockId id) {
  const BlockId before = At(id).prev, after = At(id).next;
  (before == kNullBlock ? front_ : At(before).next) = after;
  (after == kNullBlock ? back_ : At(after).prev) = before;
  --size_;
}

Status BlockList::CheckIntegrity() const {
  int32_t count = 0;
  BlockId before = kNullBlock;
  for (BlockId id = front_; id != kNullBlock; id = After(id)) {
    const Block& block = (*blocks_)[id.value()];
    if (block.prev != before) return Internal("block list: broken back link");
    if (block.ref_count != 0) return Internal("block list: a member has references");
    if (++count > size_) return Internal("block list: longer than its size");
    before = id;
  }
  if (count != size_ || before != back_) return Internal("block list: shorter than its size");
  return OkStatus();
}

}  // namespace pagemill::kv_cache
