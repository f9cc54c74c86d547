// What becomes of blocks once their tokens are computed.
#include <algorithm>
#include <utility>

#include "cc/kv_cache/kv_cache_manager.h"

namespace pagemill::kv_cache {

void KvCacheManager::CommitFilled(const step::Request& request, const step::TokenSequence& tokens,
                                  int32_t num_computed_tokens, RequestBlocks* blocks) {
  const int32_t size = options_.block_size;
  num_computed_tokens = std::min({num_computed_tokens, tokens.size(), blocks->num_covered_tokens_});
  const int32_t num_full = num_computed_tokens / size * size;
  if (num_full <= blocks->num_committed_tokens_) return;
  const bool caching = caching_ && blocks->generation_ == generation_;
  if (caching) ExtendHashes(request, tokens, num_full / size, blocks);
  for (const Group& group : groups_) {
    if (caching) CacheFilled(request, tokens, group, num_full, blocks);
    if (!group.traits.prefixes_nest) GiveBackUnneeded(group, num_computed_tokens, blocks);
    if (caching && group.traits.checkpoints) {
      DropSuperseded(group, num_full / group.block_tokens, blocks);
    }
  }
  blocks->num_committed_tokens_ = num_full;
}

void KvCacheManager::CacheFilled(const step::Request& request, const step::TokenSequence& tokens,
                                 const Group& group, int32_t num_computed_tokens,
                                 RequestBlocks* blocks) {
  const std::vector<BlockId>& table = blocks->groups_[group.id.value()];
  const int32_t first = blocks->num_committed_tokens_ / group.block_tokens;
  const int32_t last = num_computed_tokens / group.block_tokens;
  int32_t run = first;  // blocks [run, i) are new to the cache
  for (int32_t i = first; i < last; ++i) {
    const std::span<const BlockId> pages = PagesAt(group, table, i);
    const BlockHash& hash = blocks->hashes_[static_cast<size_t>((i + 1) * group.stride - 1)];
    const bool is_new = pages.front() != kNullBlock && pool_.Cache(pages, hash, group.id);
    if (is_new && group.traits.checkpoints &&
        i + 1 == blocks->shape_.branch_tokens / group.block_tokens) {
      pool_.MarkBranch(pages.front());
    }
    if (is_new || events_ == nullptr) continue;
    AppendStored(request, tokens, group, {run, i}, *blocks);
    run = i + 1;
  }
  if (events_ != nullptr) AppendStored(request, tokens, group, {run, last}, *blocks);
}

// `range` counts blocks of the group.
void KvCacheManager::AppendStored(const step::Request& request, const step::TokenSequence& tokens,
                                  const Group& group, TokenRange range,
                                  const RequestBlocks& blocks) {
  if (range.begin >= range.end) return;
  KvEvent event;
  event.group = group.id;
  event.block_size = group.block_tokens;
  if (range.begin > 0) {
    event.parent = blocks.hashes_[static_cast<size_t>(range.begin * group.stride - 1)];
  }
  for (int32_t i = range.begin; i < range.end; ++i) {
    event.hashes.push_back(blocks.hashes_[static_cast<size_t>((i + 1) * group.stride - 1)]);
  }
  const int32_t begin = range.begin * group.block_tokens, end = range.end * group.block_tokens;
  tokens.CopyTo(begin, end, &event.token_ids);
  for (int32_t at = begin; at < end; at += options_.block_size) {
    event.extra_keys.push_back(ExtraKeys(request, at, at + options_.block_size));
  }
  events_->Append(std::move(event));
}

void KvCacheManager::GiveBackUnneeded(const Group& group, int32_t num_computed_tokens,
                                      RequestBlocks* blocks) {
  const TokenRange range{num_computed_tokens, num_computed_tokens};
  const int32_t length = Length(group, blocks->groups_[group.id.value()]);
  int32_t& first = blocks->progress_[group.id.value()].first_held;
  for (; first < length && !group.kind->Needs(first, range, blocks->shape_); ++first) {
    GiveBack(group, first, blocks);
  }
}

// The newest checkpoint takes the place of the one before it: requests that continue this one start
// from the newest. An older one that is forgotten at once, or evicted first, displaces no other
// content.
void KvCacheManager::DropSuperseded(const Group& group, int32_t num_blocks, RequestBlocks* blocks) {
  int32_t& last = blocks->progress_[group.id.value()].last_checkpoint;
  const std::vector<BlockId>& table = blocks->groups_[group.id.value()];
  if (num_blocks == last || table[EntryOf(group, num_blocks - 1)] == kNullBlock) return;
  if (last > 0) {
    const std::optional<BlockId> page = Find(group, last - 1, *blocks);
    const CacheKind::Worth worth = group.kind->WorthAfterNext(last - 1, blocks->shape_);
    if (page && worth == CacheKind::Worth::kLittle) pool_.Supersede(*page);
    if (page && worth == CacheKind::Worth::kNothing && pool_.ref_count(*page) == 0 &&
        !pool_.was_reused(*page)) {
      pool_.Forget(*page);
    }
  }
  last = num_blocks;
}

int32_t KvCacheManager::NumHolders(BlockId id) const {
  const int32_t references = pool_.ref_count(id);
  if (held_.empty()) return references;
  const auto held = held_.find(id);
  return held == held_.end() ? references : references - held->second;
}

void KvCacheManager::NumCommonPrefixBlocks(const RequestBlocks& blocks,
                                           std::vector<int32_t>* counts) {
  for (Group& group : groups_) {
    int32_t& common = group.num_common;
    if (group.traits.prefixes_nest && group.traits.cacheable && !blocks.empty()) {
      const std::vector<BlockId>& table = blocks.groups_[group.id.value()];
      const int32_t computed = blocks.num_committed_tokens_ / group.block_tokens;
      while (common < computed &&
             NumHolders(table[EntryOf(group, common)]) == num_holders_) {
        ++common;
      }
    }
    counts->push_back(common);
  }
}

}  // namespace pagemill::kv_cache
