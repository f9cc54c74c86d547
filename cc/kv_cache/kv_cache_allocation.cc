// Taking blocks and giving them back.
#include <algorithm>
#include <string>

#include "cc/kv_cache/kv_cache_manager.h"

namespace pagemill::kv_cache {

namespace {

const std::vector<std::vector<BlockId>> kNoTables;

}  // namespace

// The free pages that it takes to extend `blocks` to `range.end` tokens, of which those from
// `range.begin` on are computed in the next step.
int32_t KvCacheManager::NumNewPages(const RequestBlocks& blocks, const PrefixMatch* match,
                                    TokenRange range) const {
  const bool matches = blocks.empty() && match != nullptr && match->num_tokens > 0;
  const Tables& tables = matches ? match->groups : blocks.empty() ? kNoTables : blocks.groups_;
  int32_t taken = 0;
  for (const Group& group : groups_) {
    int32_t length = 0;
    if (blocks.empty()) taken += group.traits.num_leading * group.pages;
    if (!tables.empty()) {
      const std::vector<BlockId>& table = tables[group.id.value()];
      length = Length(group, table);
      // Found pages that others hold cost nothing.
      for (size_t i = 0; matches && i < table.size(); ++i) {
        taken += table[i] != kNullBlock && pool_.ref_count(table[i]) == 0;
      }
    }
    const TokenRange computed{std::max(range.begin, length * group.block_tokens), range.end};
    const int32_t wanted = group.kind->NumBlocks(range.end, blocks.shape_);
    for (int32_t i = length; i < wanted; ++i) {
      if (group.kind->Needs(i, computed, blocks.shape_)) taken += group.pages;
    }
  }
  return taken;
}

bool KvCacheManager::CanAllocate(const RequestBlocks& blocks, const PrefixMatch* match,
                                 int32_t num_tokens, int32_t num_reserved_blocks) const {
  int32_t taken = 0;
  if (blocks.empty()) {
    taken = NumMissingBlocks(blocks, num_tokens);
    // Found blocks that others hold cost nothing.
    if (match != nullptr) taken += match->num_free_blocks - std::min(taken, match->num_blocks);
  } else {
    taken = NumNewPages(blocks, nullptr, {0, num_tokens});
  }
  return taken == 0 || taken + num_reserved_blocks <= pool_.num_free();
}

Status KvCacheManager::CheckRoom(const RequestBlocks& blocks, const PrefixMatch* match,
                                 TokenRange range) const {
  if (blocks.empty() && match != nullptr && match->num_tokens > 0) {
    if (match->groups.size() != groups_.size()) {
      return InvalidArgument("the prefix match is not of this KV cache");
    }
    if (match->num_tokens > range.end) {
      return InvalidArgument("a match of " + std::to_string(match->num_tokens) +
                             " tokens exceeds the " + std::to_string(range.end) +
                             " tokens that it is for");
    }
  }
  const int32_t taken = NumNewPages(blocks, match, range);
  if (taken <= pool_.num_free()) return OkStatus();
  return ResourceExhausted(std::to_string(range.end) + " tokens take " + std::to_string(taken) +
                           " free KV blocks, and " + std::to_string(pool_.num_free()) +
                           " are left; ask CanAllocate() first");
}

// The first blocks: those of the match.
void KvCacheManager::Begin(const PrefixMatch* match, RequestBlocks* blocks) {
  ++num_holders_;
  blocks->generation_ = generation_;
  blocks->groups_.resize(groups_.size());
  blocks->progress_.assign(groups_.size(), {});
  if (match != nullptr && match->num_tokens > 0) {
    blocks->groups_ = match->groups;
    blocks->num_committed_tokens_ = match->num_tokens;
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    RequestBlocks::Progress& progress = blocks->progress_[g];
    std::vector<BlockId>& table = blocks->groups_[g];
    table.resize(std::max(table.size(), EntryOf(group, 0)), kNullBlock);
    const int32_t length = Length(group, table);
    for (int32_t i = 0; i < length; ++i) {
      for (BlockId id : PagesAt(group, table, i)) {
        if (id != kNullBlock) pool_.Reuse(id);
      }
      const bool is_held = table[EntryOf(group, i)] != kNullBlock;
      if (is_held && progress.num_held++ == 0) progress.first_held = i;
    }
    progress.num_held += group.traits.num_leading;
    if (group.traits.checkpoints && length > 0) {
      // This request continues from the last checkpoint, and so will later ones.
      for (int32_t i = 0; i < length - 1; ++i) {
        if (const std::optional<BlockId> page = Find(group, i, *blocks)) pool_.Supersede(*page);
      }
    }
    // Common is what the others have in common, as far as this request has it too.
    int32_t common = 0;
    while (common < std::min(group.num_common, length) &&
           NumHolders(table[EntryOf(group, common)]) == num_holders_) {
      ++common;
    }
    group.num_common = common;
  }
  // Behind the match, none of whose pages may be taken for these.
  for (const Group& group : groups_) {
    std::vector<BlockId>& table = blocks->groups_[group.id.value()];
    for (size_t i = 0; i < EntryOf(group, 0); ++i) table[i] = pool_.Allocate();
  }
}

void KvCacheManager::Grow(const Group& group, TokenRange range, RequestBlocks* blocks,
                          std::vector<BlockId>* added) {
  std::vector<BlockId>& table = blocks->groups_[group.id.value()];
  const int32_t wanted = group.kind->NumBlocks(range.end, blocks->shape_);
  for (int32_t i = Length(group, table); i < wanted; ++i) {
    const bool needed = group.kind->Needs(i, range, blocks->shape_);
    blocks->progress_[group.id.value()].num_held += needed;
    for (int32_t k = 0; k < group.pages; ++k) {
      table.push_back(needed ? pool_.Allocate() : kNullBlock);
      added->push_back(table.back());
    }
  }
}

Status KvCacheManager::Extend(int32_t num_tokens, const PrefixMatch* match, RequestBlocks* blocks,
                              Tables* new_block_ids) {
  PAGEMILL_RETURN_IF_ERROR(CheckRoom(*blocks, match, {0, num_tokens}));
  const int32_t size = options_.block_size;
  blocks->num_covered_tokens_ = (num_tokens + size - 1) / size * size;
  if (blocks->empty()) {
    if (groups_.empty()) return OkStatus();
    Begin(match, blocks);
    *new_block_ids = blocks->groups_;
  }
  for (const Group& group : groups_) {
    const int32_t length = Length(group, blocks->groups_[group.id.value()]);
    if (group.kind->NumBlocks(num_tokens, blocks->shape_) <= length) continue;
    if (new_block_ids->empty()) new_block_ids->resize(groups_.size());
    const TokenRange range{length * group.block_tokens, num_tokens};
    Grow(group, range, blocks, &(*new_block_ids)[group.id.value()]);
  }
  return OkStatus();
}

Status KvCacheManager::AllocateForLoad(int32_t num_tokens, const PrefixMatch* match,
                                       RequestBlocks* blocks) {
  if (!blocks->empty()) {
    return FailedPrecondition("KV is loaded before a request runs; this one holds blocks already");
  }
  if (num_tokens < 0 || num_tokens % prefix_grain_ != 0) {
    return InvalidArgument("KV of " + std::to_string(num_tokens) + " tokens cannot be loaded: " +
                           "that takes a multiple of prefix_grain_tokens(), " +
                           std::to_string(prefix_grain_));
  }
  if (groups_.empty()) return OkStatus();
  PAGEMILL_RETURN_IF_ERROR(CheckRoom(*blocks, match, {num_tokens, num_tokens}));
  Begin(match, blocks);
  blocks->num_covered_tokens_ = num_tokens;
  std::vector<BlockId> unplanned;
  for (const Group& group : groups_) Grow(group, {num_tokens, num_tokens}, blocks, &unplanned);
  return OkStatus();
}

void KvCacheManager::GiveBack(const Group& group, int32_t index, RequestBlocks* blocks) {
  std::vector<BlockId>& table = blocks->groups_[group.id.value()];
  const auto first = table.begin() + static_cast<ptrdiff_t>(EntryOf(group, index));
  if (*first == kNullBlock) return;
  --blocks->progress_[group.id.value()].num_held;
  for (int32_t k = group.pages; k-- > 0;) {
    pool_.Release(first[k]);
    first[k] = kNullBlock;
  }
}

void KvCacheManager::GiveBackLeading(const Group& group, RequestBlocks* blocks) {
  const std::vector<BlockId>& table = blocks->groups_[group.id.value()];
  for (size_t i = EntryOf(group, 0); i-- > 0;) pool_.Release(table[i]);
}

bool KvCacheManager::TruncateComputed(int32_t num_tokens, RequestBlocks* blocks) {
  if (num_tokens < 0 || num_tokens % options_.block_size != 0) return false;
  if (blocks->empty()) return true;
  bool complete = num_tokens % prefix_grain_ == 0;
  for (Group& group : groups_) {
    std::vector<BlockId>& table = blocks->groups_[group.id.value()];
    const int32_t length = group.kind->NumBlocks(num_tokens, blocks->shape_);
    for (int32_t i = Length(group, table); i-- > length;) GiveBack(group, i, blocks);
    table.resize(std::min(table.size(), EntryOf(group, length)));
    group.num_common = std::min(group.num_common, num_tokens / group.block_tokens);
    RequestBlocks::Progress& progress = blocks->progress_[group.id.value()];
    progress.first_held = std::min(progress.first_held, Length(group, table));
    if (progress.last_checkpoint > num_tokens / group.block_tokens) progress.last_checkpoint = 0;
    if (num_tokens == 0) continue;
    if (!group.traits.truncates) complete = false;
    const TokenRange range{num_tokens, num_tokens};
    for (int32_t i = 0; i < length; ++i) {
      const bool is_held =
          i < Length(group, table) && table[EntryOf(group, i)] != kNullBlock;
      if (!is_held && group.kind->Needs(i, range, blocks->shape_)) complete = false;
    }
  }
  blocks->num_covered_tokens_ = std::min(blocks->num_covered_tokens_, num_tokens);
  blocks->num_committed_tokens_ = std::min(blocks->num_committed_tokens_, num_tokens);
  return complete;
}

void KvCacheManager::Free(RequestBlocks* blocks) {
  if (!blocks->empty()) --num_holders_;
  // Position by position, so that the groups lose the end of a prefix together.
  int32_t longest = 0;
  for (const Group& group : groups_) {
    if (blocks->empty()) break;
    longest = std::max(longest, Length(group, blocks->groups_[group.id.value()]) * group.stride);
  }
  for (int32_t i = longest; i-- > 0;) {
    for (const Group& group : groups_) {
      if (i % group.stride != 0) continue;
      const int32_t index = i / group.stride;
      if (index < Length(group, blocks->groups_[group.id.value()])) GiveBack(group, index, blocks);
    }
  }
  for (const Group& group : groups_) {
    if (!blocks->empty()) GiveBackLeading(group, blocks);
  }
  blocks->groups_.clear();
  blocks->progress_.clear();
  blocks->num_covered_tokens_ = 0;
  blocks->num_committed_tokens_ = 0;
}

}  // namespace pagemill::kv_cache
