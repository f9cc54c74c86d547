#include "cc/kv_cache/eviction/miniature_cache.h"

#include <optional>

namespace pagemill::kv_cache {

MiniatureCache::MiniatureCache(int32_t capacity, int32_t protected_quarters)
    : protected_quarters_(protected_quarters),
      blocks_(static_cast<size_t>(capacity) + 1),
      empty_(&blocks_),
      cache_(&blocks_),
      order_(&blocks_, 0) {
  for (int32_t i = 1; i <= capacity; ++i) empty_.PushBack(BlockId(i));
}

bool MiniatureCache::Use(const BlockHash& hash, GroupId group, int32_t max_blocks) {
  order_.set_max_protected(max_blocks * protected_quarters_ / 4);
  const std::optional<BlockId> found = cache_.Find(hash, group);
  if (found) order_.Remove(*found);
  const BlockId id = found ? *found : Enter(hash, group, max_blocks);
  Block& block = blocks_[id.value()];
  block.used = true;
  block.reused = found.has_value();
  order_.Insert(id);
  return found.has_value();
}

BlockId MiniatureCache::Enter(const BlockHash& hash, GroupId group, int32_t max_blocks) {
  for (int i = 0; i < 2 && order_.size() >= max_blocks; ++i) {
    const BlockId victim = order_.Victim();
    order_.Remove(victim);
    cache_.Erase(victim);
    blocks_[victim.value()].hash = BlockHash();
    empty_.PushFront(victim);
  }
  const BlockId id = empty_.front();
  empty_.Remove(id);
  blocks_[id.value()].hash = hash;
  blocks_[id.value()].group = group;
  cache_.Insert(id);
  return id;
}

Status MiniatureCache::CheckIntegrity() const {
  PAGEMILL_RETURN_IF_ERROR(empty_.CheckIntegrity());
  PAGEMILL_RETURN_IF_ERROR(cache_.CheckIntegrity());
  return order_.CheckIntegrity(cache_.size());
}

}  // namespace pagemill::kv_cache
