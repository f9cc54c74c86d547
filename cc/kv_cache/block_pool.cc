#include "cc/kv_cache/block_pool.h"

#include "cc/kv_cache/eviction/policies.h"

namespace pagemill::kv_cache {

BlockPool::BlockPool(int32_t num_blocks, std::string_view eviction, EventLog* events,
                     BlockAges* ages)
    : blocks_(num_blocks),
      empty_(&blocks_),
      eviction_(*MakeEvictionPolicy(eviction, &blocks_)),
      superseded_(&blocks_),
      cache_(&blocks_),
      events_(events),
      ages_(ages),
      evicted_(num_blocks) {
  PAGEMILL_CHECK(num_blocks >= 1);
  for (int32_t i = 1; i < num_blocks; ++i) empty_.PushBack(BlockId(i));
}

BlockId BlockPool::Allocate() {
  if (empty_.size() == 0) {
    PAGEMILL_CHECK(num_evictable_ > 0);
    const BlockId victim =
        FirstPage(superseded_.size() > 0 ? superseded_.front() : eviction_->Victim());
    evicted_.Add(At(victim).hash);
    if (IsMeasured(victim)) ages_->Evicted(victim);
    Forget(victim);
    ++num_evictions_;
  }
  const BlockId id = empty_.front();
  empty_.Remove(id);
  At(id).ref_count = 1;
  At(id).reused = At(id).branches = false;
  return id;
}

void BlockPool::InsertEvictable(BlockId id) {
  ++num_evictable_;
  if (At(id).superseded) {
    superseded_.PushBack(id);
  } else {
    eviction_->Insert(id);
  }
}

void BlockPool::RemoveEvictable(BlockId id) {
  --num_evictable_;
  if (At(id).superseded) {
    superseded_.Remove(id);
  } else {
    eviction_->Remove(id);
  }
}

void BlockPool::AddReference(BlockId id) {
  Block& block = At(id);
  if (block.ref_count++ > 0) return;
  if (HasContent(id)) {
    RemoveEvictable(id);
  } else {
    empty_.Remove(id);
  }
}

void BlockPool::Release(BlockId id) {
  Block& block = At(id);
  PAGEMILL_CHECK(id != kNullBlock && block.ref_count > 0);
  if (--block.ref_count > 0) return;
  if (IsMeasured(id)) ages_->Released(id);
  if (HasContent(id)) {
    InsertEvictable(id);
  } else {
    empty_.PushFront(id);
  }
}

bool BlockPool::Cache(std::span<const BlockId> pages, const BlockHash& hash, GroupId group) {
  Block& block = At(pages.front());
  PAGEMILL_CHECK(block.ref_count > 0 && !hash.empty());
  if (!block.hash.empty()) return false;
  bool known = false;
  if (const std::optional<BlockId> other = cache_.Find(hash, group)) {
    if (At(*other).ref_count > 0) return false;
    block.reused = At(*other).reused;
    block.branches = At(*other).branches;
    if (IsMeasured(*other)) ages_->Moved(*other, pages.front());
    Clear(*other);
    known = true;
  }
  block.hash = hash;
  block.group = group;
  block.used = true;
  if (!known && IsMeasured(pages.front())) ages_->Stored(pages.front());
  cache_.Insert(pages.front());
  if (pages.size() == 1) return !known;
  if (ring_.empty()) {
    for (int32_t i = 0; i < num_blocks(); ++i) ring_.push_back(BlockId(i));
  }
  for (size_t i = 0; i < pages.size(); ++i) {
    ring_[pages[i].value()] = pages[(i + 1) % pages.size()];
    At(pages[i]).used = true;
    At(pages[i]).reused = block.reused;
    At(pages[i]).branches = block.branches;
  }
  return !known;
}

BlockId BlockPool::FirstPage(BlockId id) const {
  while (At(id).hash.empty()) id = NextPage(id);
  return id;
}

void BlockPool::Supersede(BlockId first) {
  if (At(first).hash.empty() || At(first).superseded || At(first).branches) return;
  BlockId id = first;
  do {
    id = NextPage(id);
    const bool is_free = At(id).ref_count == 0;
    if (is_free) RemoveEvictable(id);
    At(id).superseded = true;
    if (is_free) InsertEvictable(id);
  } while (id != first);
}

void BlockPool::Forget(BlockId id) {
  if (At(id).hash.empty()) return;
  if (events_ != nullptr) events_->Removed(At(id).hash, At(id).group);
  Clear(id);
}

// Takes the content from a block, and moves its free pages to those without content, such that the
// first page is handed out first.
void BlockPool::Clear(BlockId first) {
  BlockId id = first;
  do {
    id = NextPage(id);
    if (At(id).ref_count == 0) {
      RemoveEvictable(id);
      empty_.PushFront(id);
    }
    At(id).superseded = false;
  } while (id != first);
  cache_.Erase(first);
  if (IsMeasured(first)) ages_->Forgotten(first);
  At(first).hash = BlockHash();
  if (ring_.empty()) return;
  do {
    const BlockId next = ring_[id.value()];
    ring_[id.value()] = id;
    id = next;
  } while (id != first);
}

void BlockPool::Reset() {
  for (int32_t i = num_blocks() - 1; i > 0; --i) {
    if (!blocks_[i].hash.empty()) Clear(BlockId(i));
  }
  if (events_ != nullptr) events_->Cleared();
  evicted_.Clear();
}

Status BlockPool::CheckIntegrity() const {
  PAGEMILL_RETURN_IF_ERROR(empty_.CheckIntegrity());
  PAGEMILL_RETURN_IF_ERROR(cache_.CheckIntegrity());
  PAGEMILL_RETURN_IF_ERROR(superseded_.CheckIntegrity());
  PAGEMILL_RETURN_IF_ERROR(eviction_->CheckIntegrity(num_evictable_ - superseded_.size()));
  if (At(kNullBlock).ref_count != 0 || HasContent(kNullBlock)) {
    return Internal("block pool: the null block is in use");
  }
  int32_t num_unreferenced = 0, num_evictable = 0;
  for (int32_t i = 1; i < num_blocks(); ++i) {
    if (blocks_[i].superseded && !HasContent(BlockId(i))) {
      return Internal("block pool: a page without content counts as superseded");
    }
    if (blocks_[i].ref_count > 0) continue;
    ++num_unreferenced;
    num_evictable += HasContent(BlockId(i));
  }
  for (BlockId id = superseded_.front(); id != kNullBlock; id = superseded_.After(id)) {
    if (!At(id).superseded) {
      return Internal("block pool: a page among the superseded ones that is not");
    }
  }
  for (BlockId id = empty_.front(); id != kNullBlock; id = empty_.After(id)) {
    if (HasContent(id)) return Internal("block pool: a cached page among those without content");
  }
  if (num_evictable != num_evictable_ || num_unreferenced != num_free()) {
    return Internal("block pool: " + std::to_string(num_unreferenced) +
                    " pages without references, " + std::to_string(num_free()) + " free ones");
  }
  for (size_t i = 0; i < ring_.size(); ++i) {
    int32_t named = 0, left = num_blocks();
    BlockId id(static_cast<int32_t>(i));
    do {
      named += !At(id).hash.empty();
      id = NextPage(id);
    } while (id.value() != static_cast<int32_t>(i) && --left > 0);
    if (left == 0 || (NextPage(id) != id && named != 1)) {
      return Internal("block pool: broken ring of pages");
    }
  }
  return CheckAges();
}

Status BlockPool::CheckAges() const {
  if (ages_ == nullptr) return OkStatus();
  size_t num_measured = 0;
  for (int32_t i = 1; i < num_blocks(); ++i) {
    if (!IsMeasured(BlockId(i))) continue;
    ++num_measured;
    if (!ages_->Knows(BlockId(i))) return Internal("block pool: a measured block has no age");
  }
  if (num_measured != ages_->num_blocks()) {
    return Internal("block pool: ages of blocks without content are kept");
  }
  return OkStatus();
}

}  // namespace pagemill::kv_cache
