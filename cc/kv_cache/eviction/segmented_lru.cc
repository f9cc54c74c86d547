#include "cc/kv_cache/eviction/segmented_lru.h"

namespace pagemill::kv_cache {

void SegmentedLru::Insert(BlockId id) {
  Block& block = At(id);
  if (block.used) block.is_protected = block.reused;
  block.used = false;
  (block.is_protected ? protected_ : others_).PushBack(id);
  // Two pages at most, so that one insertion is O(1) after the bound became smaller.
  for (int i = 0; i < 2 && protected_.size() > max_protected_; ++i) {
    const BlockId oldest = protected_.front();
    protected_.Remove(oldest);
    At(oldest).is_protected = false;
    others_.PushBack(oldest);
  }
}

void SegmentedLru::Remove(BlockId id) { (At(id).is_protected ? protected_ : others_).Remove(id); }

BlockId SegmentedLru::Victim() const {
  return others_.size() > 0 ? others_.front() : protected_.front();
}

Status SegmentedLru::CheckIntegrity(int32_t num_pages) const {
  if (size() != num_pages) return Internal("segmented LRU: pages are missing");
  for (BlockId id = protected_.front(); id != kNullBlock; id = protected_.After(id)) {
    if (!(*blocks_)[id.value()].is_protected) {
      return Internal("segmented LRU: page in the wrong segment");
    }
  }
  PAGEMILL_RETURN_IF_ERROR(others_.CheckIntegrity());
  return protected_.CheckIntegrity();
}

}  // namespace pagemill::kv_cache
