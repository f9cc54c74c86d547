#include "cc/kv_cache/eviction/reuse.h"

namespace pagemill::kv_cache {

ReuseEviction::ReuseEviction(std::vector<Block>* blocks)
    : blocks_(blocks),
      max_protected_(static_cast<int32_t>((blocks->size() - 1) * 3 / 4)),
      others_(blocks),
      protected_(blocks) {}

void ReuseEviction::Insert(BlockId id) {
  At(id).is_protected = At(id).reused;
  (At(id).reused ? protected_ : others_).PushBack(id);
  if (protected_.size() <= max_protected_) return;
  const BlockId oldest = protected_.front();
  Remove(oldest);
  At(oldest).reused = false;
  At(oldest).is_protected = false;
  others_.PushBack(oldest);
}

void ReuseEviction::Remove(BlockId id) { (At(id).is_protected ? protected_ : others_).Remove(id); }

BlockId ReuseEviction::Victim() const {
  return others_.size() > 0 ? others_.front() : protected_.front();
}

Status ReuseEviction::CheckIntegrity(int32_t num_pages) const {
  if (others_.size() + protected_.size() != num_pages) return Internal("reuse: pages are missing");
  if (protected_.size() > max_protected_) return Internal("reuse: too many protected pages");
  for (BlockId id = protected_.front(); id != kNullBlock; id = protected_.After(id)) {
    if (!(*blocks_)[id.value()].is_protected) return Internal("reuse: page in the wrong segment");
  }
  PAGEMILL_RETURN_IF_ERROR(others_.CheckIntegrity());
  return protected_.CheckIntegrity();
}

}  // namespace pagemill::kv_cache
