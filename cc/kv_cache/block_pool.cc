#include "cc/kv_cache/block_pool.h"

namespace pagemill::kv_cache {

BlockPool::BlockPool(int32_t num_blocks) : blocks_(num_blocks), free_(&blocks_), cache_(&blocks_) {
  PM_CHECK(num_blocks >= 1);
  for (int32_t i = 1; i < num_blocks; ++i) free_.PushBack(BlockId(i));
}

BlockId BlockPool::Allocate() {
  const BlockId id = free_.PopFront();
  if (!blocks_[id.value()].hash.empty()) {
    Forget(id);
    ++num_evictions_;
  }
  blocks_[id.value()].ref_count = 1;
  return id;
}

void BlockPool::AddReference(BlockId id) {
  Block& block = blocks_[id.value()];
  if (block.ref_count == 0) free_.Remove(id);
  ++block.ref_count;
}

void BlockPool::Release(BlockId id) {
  Block& block = blocks_[id.value()];
  PM_CHECK(id != kNullBlock && block.ref_count > 0);
  if (--block.ref_count > 0) return;
  if (block.hash.empty()) {
    free_.PushFront(id);
  } else {
    free_.PushBack(id);
  }
}

void BlockPool::Cache(BlockId id, const BlockHash& hash, GroupId group) {
  Block& block = blocks_[id.value()];
  PM_CHECK(block.ref_count > 0 && block.hash.empty() && !hash.empty());
  if (const std::optional<BlockId> other = cache_.Find(hash, group)) {
    if (blocks_[other->value()].ref_count > 0) return;
    Forget(*other);
    free_.Remove(*other);
    free_.PushFront(*other);
  }
  block.hash = hash;
  block.group = group;
  cache_.Insert(id);
}

void BlockPool::Forget(BlockId id) {
  cache_.Erase(id);
  blocks_[id.value()].hash = BlockHash();
}

void BlockPool::Reset() {
  cache_.Clear();
  for (int32_t i = num_blocks() - 1; i > 0; --i) {
    Block& block = blocks_[i];
    if (block.hash.empty()) continue;
    block.hash = BlockHash();
    if (block.ref_count > 0) continue;
    free_.Remove(BlockId(i));
    free_.PushFront(BlockId(i));
  }
}

Status BlockPool::CheckIntegrity() const {
  PM_RETURN_IF_ERROR(free_.CheckIntegrity());
  PM_RETURN_IF_ERROR(cache_.CheckIntegrity());
  if (blocks_[kNullBlock.value()].ref_count != 0 || !blocks_[kNullBlock.value()].hash.empty()) {
    return Internal("block pool: the null block is in use");
  }
  // Blocks without content come before those with content.
  bool cached = false;
  for (BlockId id = free_.front(); id != kNullBlock; id = blocks_[id.value()].next) {
    const bool has_content = !blocks_[id.value()].hash.empty();
    if (cached && !has_content) return Internal("block pool: an empty block behind a cached one");
    cached = has_content;
  }
  return OkStatus();
}

}  // namespace pagemill::kv_cache
