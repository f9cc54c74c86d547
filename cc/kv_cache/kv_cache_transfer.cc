// What is kept for others than running requests: transfers and pins.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "cc/kv_cache/kv_cache_manager.h"

namespace pagemill::kv_cache {

// The full blocks in the tokens [begin, end) whose hashes are known.
TokenRange KvCacheManager::HashedBlocks(const RequestBlocks& blocks, int32_t begin,
                                        int32_t end) const {
  const int32_t size = options_.block_size;
  return {(std::max(begin, 0) + size - 1) / size,
          std::min(end / size, static_cast<int32_t>(blocks.hashes_.size()))};
}

void KvCacheManager::Contents(const RequestBlocks& blocks, int32_t begin, int32_t end,
                              std::vector<BlockContent>* contents) const {
  if (!cacheable_ || blocks.empty()) return;
  const TokenRange range = HashedBlocks(blocks, begin, end);
  for (int32_t i = range.begin; i < range.end; ++i) {
    for (const Group& group : groups_) {
      if ((i + 1) % group.stride != 0) continue;
      const std::vector<BlockId>& table = blocks.groups_[group.id.value()];
      if (i / group.stride >= Length(group, table)) continue;
      for (BlockId id : PagesAt(group, table, i / group.stride)) {
        if (id != kNullBlock) contents->push_back({blocks.hashes_[i], group.id, id});
      }
    }
  }
}

void KvCacheManager::CachedContents(const RequestBlocks& blocks, int32_t begin, int32_t end,
                                    std::vector<BlockContent>* contents) const {
  if (!cacheable_ || blocks.empty()) return;
  int32_t spare = pool_.num_free() - pool_.num_usable() / 4;
  const TokenRange range = HashedBlocks(blocks, begin, end);
  for (int32_t i = range.begin; i < range.end; ++i) {
    for (const Group& group : groups_) {
      if ((i + 1) % group.stride != 0) continue;
      std::optional<BlockId> page = Find(group, i / group.stride, blocks);
      if (!page) continue;
      if (pool_.ref_count(*page) == 0) {
        if (spare < group.pages) continue;
        spare -= group.pages;
      }
      for (int32_t k = 0; k < group.pages; ++k, page = pool_.NextPage(*page)) {
        contents->push_back({blocks.hashes_[static_cast<size_t>(i)], group.id, *page});
      }
    }
  }
}

Status KvCacheManager::Hold(std::span<const BlockId> ids) {
  for (BlockId id : ids) {
    if (id.value() > kNullBlock.value() && id.value() < pool_.num_blocks()) continue;
    return InvalidArgument("there is no KV block " + std::to_string(id.value()) + " to hold");
  }
  for (BlockId id : ids) {
    pool_.AddReference(id);
    ++held_[id];
  }
  return OkStatus();
}

Status KvCacheManager::Unhold(std::span<const BlockId> ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto found = held_.find(ids[i]);
    if (found != held_.end()) {
      if (--found->second == 0) held_.erase(found);
      pool_.Release(ids[i]);
      continue;
    }
    const Status undone = Hold(ids.first(i));
    return InvalidArgument("KV block " + std::to_string(ids[i].value()) + " is not held");
  }
  return OkStatus();
}

StatusOr<PinId> KvCacheManager::Pin(std::span<const BlockHash> hashes) {
  std::vector<BlockId> ids;
  for (const BlockHash& hash : hashes) {
    for (const Group& group : groups_) {
      const std::optional<BlockId> first = pool_.Find(hash, group.id);
      if (!first) continue;
      BlockId id = *first;
      for (int32_t k = 0; k < group.pages; ++k, id = pool_.NextPage(id)) ids.push_back(id);
    }
  }
  if (ids.empty()) return NotFound("nothing of the prefix to pin is cached: run it first");
  const auto count = static_cast<int32_t>(ids.size());
  if (num_pinned_blocks_ + count > options_.max_pinned_blocks) {
    return ResourceExhausted("pinning " + std::to_string(count) + " blocks beside " +
                             std::to_string(num_pinned_blocks_) + " pinned ones exceeds " +
                             "max_pinned_blocks, " + std::to_string(options_.max_pinned_blocks));
  }
  PAGEMILL_CHECK(Hold(ids).ok());
  num_pinned_blocks_ += count;
  const PinId id(++num_pins_);
  pins_.emplace(id, std::move(ids));
  return id;
}

bool KvCacheManager::Unpin(PinId id) {
  const auto found = pins_.find(id);
  if (found == pins_.end()) return false;
  num_pinned_blocks_ -= static_cast<int32_t>(found->second.size());
  // The last one first, as Free() does.
  std::reverse(found->second.begin(), found->second.end());
  PAGEMILL_CHECK(Unhold(found->second).ok());
  pins_.erase(found);
  return true;
}

}  // namespace pagemill::kv_cache
