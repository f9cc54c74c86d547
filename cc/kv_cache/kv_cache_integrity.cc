#include <algorithm>
#include <string>

#include "cc/kv_cache/kv_cache_manager.h"

namespace pagemill::kv_cache {

Status KvCacheManager::CheckHolder(const RequestBlocks& holder, std::vector<int32_t>* refs) const {
  if (holder.groups_.size() != groups_.size()) return Internal("KV cache: a table is missing");
  if (holder.num_committed_tokens_ > holder.num_covered_tokens_) {
    return Internal("KV cache: more tokens committed than blocks are there for");
  }
  for (const Group& group : groups_) {
    const std::vector<BlockId>& table = holder.groups_[group.id.value()];
    const RequestBlocks::Progress& progress = holder.progress_[group.id.value()];
    const int32_t length = Length(group, table);
    if (length != group.kind->NumBlocks(holder.num_covered_tokens_, holder.shape_)) {
      return Internal("KV cache: a table is longer or shorter than the covered tokens need");
    }
    int32_t num_held = group.traits.num_leading;
    for (const BlockId id : std::span(table).first(EntryOf(group, 0))) {
      if (id == kNullBlock) return Internal("KV cache: a leading page is missing");
      ++(*refs)[static_cast<size_t>(id.value())];
    }
    for (int32_t i = 0; i < length; ++i) {
      const std::span<const BlockId> pages = PagesAt(group, table, i);
      num_held += pages.front() != kNullBlock;
      for (BlockId id : pages) {
        if ((id == kNullBlock) != (pages.front() == kNullBlock)) {
          return Internal("KV cache: only some pages of a block were freed");
        }
        if (id != kNullBlock) ++(*refs)[static_cast<size_t>(id.value())];
      }
      if (i < progress.first_held && pages.front() != kNullBlock) {
        return Internal("KV cache: a block is held that nothing needs");
      }
    }
    if (progress.last_checkpoint * group.block_tokens > holder.num_committed_tokens_) {
      return Internal("KV cache: a checkpoint of tokens that are not committed");
    }
    if (num_held != progress.num_held) return Internal("KV cache: held blocks are miscounted");
  }
  return OkStatus();
}

Status KvCacheManager::CheckIntegrity(std::span<const RequestBlocks* const> holders) const {
  PAGEMILL_RETURN_IF_ERROR(pool_.CheckIntegrity());
  std::vector<int32_t> refs(static_cast<size_t>(pool_.num_blocks()), 0);
  for (const auto& [id, count] : held_) refs[static_cast<size_t>(id.value())] += count;
  int32_t num_holders = 0, num_pinned = 0;
  for (const auto& [id, pages] : pins_) num_pinned += static_cast<int32_t>(pages.size());
  for (const RequestBlocks* holder : holders) {
    if (holder->empty()) continue;
    ++num_holders;
    PAGEMILL_RETURN_IF_ERROR(CheckHolder(*holder, &refs));
  }
  if (num_holders != num_holders_) return Internal("KV cache: holders are miscounted");
  if (num_pinned != num_pinned_blocks_ || num_pinned > options_.max_pinned_blocks) {
    return Internal("KV cache: pinned blocks are miscounted");
  }
  for (int32_t i = 0; i < pool_.num_blocks(); ++i) {
    const int32_t references = pool_.ref_count(BlockId(i));
    if (refs[static_cast<size_t>(i)] == references) continue;
    return Internal("KV cache: block " + std::to_string(i) + " has " + std::to_string(references) +
                    " references, " + std::to_string(refs[static_cast<size_t>(i)]) + " holders");
  }
  for (const Group& group : groups_) {
    for (const RequestBlocks* holder : holders) {
      if (holder->empty()) continue;
      const std::vector<BlockId>& table = holder->groups_[group.id.value()];
      const size_t common = group.num_common == 0 ? 0 : EntryOf(group, group.num_common);
      const RequestBlocks* first = *std::find_if(
          holders.begin(), holders.end(), [](const RequestBlocks* h) { return !h->empty(); });
      if (common > table.size() ||
          !std::equal(table.begin(), table.begin() + static_cast<ptrdiff_t>(common),
                      first->groups_[group.id.value()].begin())) {
        return Internal("KV cache: blocks are not as common as they are counted");
      }
    }
  }
  return OkStatus();
}

}  // namespace pagemill::kv_cache
