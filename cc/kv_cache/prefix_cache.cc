#include "cc/kv_cache/prefix_cache.h"

#include <algorithm>
#include <bit>

namespace pagemill::kv_cache {

PrefixCache::PrefixCache(const std::vector<Block>* blocks)
    : blocks_(blocks), slots_(std::bit_ceil(2 * blocks->size())), mask_(slots_.size() - 1) {}

size_t PrefixCache::Probe(const BlockHash& hash, GroupId group) const {
  size_t at = Home(hash);
  for (; slots_[at].id != kNullBlock; at = (at + 1) & mask_) {
    if (slots_[at].tag != Tag(hash)) continue;
    const Block& block = (*blocks_)[slots_[at].id.value()];
    if (block.hash == hash && block.group == group) break;
  }
  return at;
}

std::optional<BlockId> PrefixCache::Find(const BlockHash& hash, GroupId group) const {
  const BlockId id = slots_[Probe(hash, group)].id;
  if (id == kNullBlock) return std::nullopt;
  return id;
}

void PrefixCache::Insert(BlockId id) {
  const Block& block = (*blocks_)[id.value()];
  const size_t at = Probe(block.hash, block.group);
  PAGEMILL_CHECK(slots_[at].id == kNullBlock);
  slots_[at] = {id, Tag(block.hash)};
  ++size_;
}

void PrefixCache::Erase(BlockId id) {
  const Block& block = (*blocks_)[id.value()];
  size_t hole = Probe(block.hash, block.group);
  PAGEMILL_CHECK(slots_[hole].id == id);
  // Entries behind the hole move up, unless that would put them before their home slot; so the
  // table needs no tombstones.
  for (size_t at = (hole + 1) & mask_; slots_[at].id != kNullBlock; at = (at + 1) & mask_) {
    const size_t home = Home((*blocks_)[slots_[at].id.value()].hash);
    if (((at - home) & mask_) >= ((at - hole) & mask_)) {
      slots_[hole] = slots_[at];
      hole = at;
    }
  }
  slots_[hole] = {};
  --size_;
}

void PrefixCache::Clear() {
  std::fill(slots_.begin(), slots_.end(), Slot());
  size_ = 0;
}

Status PrefixCache::CheckIntegrity() const {
  int32_t hashed = 0;
  for (size_t i = 0; i < blocks_->size(); ++i) {
    const Block& block = (*blocks_)[i];
    if (block.hash.empty()) continue;
    ++hashed;
    if (Find(block.hash, block.group) != BlockId(static_cast<int32_t>(i))) {
      return Internal("prefix cache: a block with a hash is not found");
    }
  }
  const auto used = std::count_if(slots_.begin(), slots_.end(),
                                  [](const Slot& slot) { return slot.id != kNullBlock; });
  if (hashed != size_ || used != size_) return Internal("prefix cache: entries and size disagree");
  return OkStatus();
}

}  // namespace pagemill::kv_cache
