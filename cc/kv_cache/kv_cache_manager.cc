#include "cc/kv_cache/kv_cache_manager.h"

#include <algorithm>
#include <utility>

#include "cc/kv_cache/kinds/kinds.h"

namespace pagemill::kv_cache {
namespace {

GroupId GroupAt(size_t g) { return GroupId(static_cast<uint16_t>(g)); }

}  // namespace

KvCacheManager::KvCacheManager(const KvCacheOptions& options)
    : options_(options), pool_(options.num_blocks), hasher_(options.hash_algorithm) {
  PM_CHECK(options.Validate().ok());
  for (const KvGroupOptions& group : options.groups) {
    kinds_.push_back(*MakeCacheKind(group, options.block_size));
  }
}

int32_t KvCacheManager::NumBlocks(int32_t num_tokens) const {
  int32_t total = 0;
  for (const auto& kind : kinds_) total += kind->NumBlocks(num_tokens);
  return total;
}

void KvCacheManager::ExtendHashes(const step::Request& request, const step::TokenSequence& tokens,
                                  int32_t num_blocks, RequestBlocks* blocks) {
  std::vector<BlockHash>& hashes = blocks->hashes_;
  const int32_t size = options_.block_size;
  for (auto i = static_cast<int32_t>(hashes.size()); i < num_blocks; ++i) {
    const BlockHash parent = hashes.empty() ? BlockHash() : hashes.back();
    hashes.push_back(hasher_.Hash(parent, ExtraKeys(request, i), tokens, i * size, (i + 1) * size));
  }
}

PrefixMatch KvCacheManager::FindPrefix(const step::Request& request,
                                       const step::TokenSequence& tokens, RequestBlocks* blocks) {
  PM_CHECK(blocks->empty());
  PrefixMatch match;
  const int32_t num_full = (tokens.size() - 1) / options_.block_size;
  if (!options_.enable_prefix_caching || kinds_.empty() || num_full <= 0) return match;
  ExtendHashes(request, tokens, num_full, blocks);

  // All groups must agree on the length: each one gets what the ones before it found, and where it
  // finds less, those before it are cut. All kinds so far can go on after any block.
  std::span<const BlockHash> hashes(blocks->hashes_.data(), static_cast<size_t>(num_full));
  match.groups.resize(kinds_.size());
  for (size_t g = 0; g < kinds_.size(); ++g) {
    kinds_[g]->FindPrefix(hashes, GroupAt(g), pool_, &match.groups[g]);
    hashes = hashes.first(match.groups[g].size());
  }
  for (std::vector<BlockId>& group : match.groups) {
    group.resize(hashes.size());
    match.num_free_blocks += static_cast<int32_t>(std::count_if(
        group.begin(), group.end(), [this](BlockId id) { return pool_.ref_count(id) == 0; }));
  }
  match.num_tokens = static_cast<int32_t>(hashes.size()) * options_.block_size;
  return match;
}

int32_t KvCacheManager::NumNewBlocks(const RequestBlocks& blocks, int32_t num_tokens) const {
  int32_t count = 0;
  for (size_t g = 0; g < kinds_.size(); ++g) {
    const auto held = blocks.empty() ? 0 : static_cast<int32_t>(blocks.groups_[g].size());
    count += std::max(0, kinds_[g]->NumBlocks(num_tokens) - held);
  }
  return count;
}

bool KvCacheManager::CanAllocate(const RequestBlocks& blocks, const PrefixMatch* match,
                                 int32_t num_tokens, int32_t num_reserved_blocks) const {
  int32_t taken = NumNewBlocks(blocks, num_tokens);
  if (match != nullptr) {
    // Found blocks that others hold cost nothing.
    for (const std::vector<BlockId>& group : match->groups) {
      taken -= static_cast<int32_t>(group.size());
    }
    taken += match->num_free_blocks;
  }
  return taken == 0 || taken + num_reserved_blocks <= pool_.num_free();
}

void KvCacheManager::Allocate(int32_t num_tokens, const PrefixMatch* match, RequestBlocks* blocks,
                              std::vector<std::vector<BlockId>>* new_block_ids) {
  const int32_t size = options_.block_size;
  if (Covers(*blocks, num_tokens)) return;
  blocks->num_covered_tokens_ = (num_tokens + size - 1) / size * size;
  if (blocks->empty()) blocks->groups_.resize(kinds_.size());
  if (match != nullptr && match->num_tokens > 0) {
    PM_CHECK(blocks->num_committed_blocks_ == 0);
    for (size_t g = 0; g < kinds_.size(); ++g) {
      for (BlockId id : match->groups[g]) pool_.AddReference(id);
    }
    blocks->groups_ = match->groups;
    blocks->num_committed_blocks_ = match->num_tokens / size;
    *new_block_ids = match->groups;
  }
  for (size_t g = 0; g < kinds_.size(); ++g) {
    std::vector<BlockId>& table = blocks->groups_[g];
    const int32_t wanted = kinds_[g]->NumBlocks(num_tokens);
    if (static_cast<int32_t>(table.size()) >= wanted) continue;
    if (new_block_ids->empty()) new_block_ids->resize(kinds_.size());
    while (static_cast<int32_t>(table.size()) < wanted) {
      table.push_back(pool_.Allocate());
      (*new_block_ids)[g].push_back(table.back());
    }
  }
}

void KvCacheManager::AllocateForLoad(int32_t num_tokens, const PrefixMatch* match,
                                     RequestBlocks* blocks) {
  std::vector<std::vector<BlockId>> unplanned;
  Allocate(num_tokens, match, blocks, &unplanned);
}

bool KvCacheManager::TruncateComputed(int32_t num_tokens, RequestBlocks* blocks) {
  const int32_t size = options_.block_size;
  PM_CHECK(num_tokens % size == 0);
  for (size_t g = 0; g < blocks->groups_.size(); ++g) {
    std::vector<BlockId>& table = blocks->groups_[g];
    const int32_t keep = kinds_[g]->NumBlocks(num_tokens);
    while (static_cast<int32_t>(table.size()) > keep) {
      pool_.Release(table.back());
      table.pop_back();
    }
  }
  blocks->num_covered_tokens_ = std::min(blocks->num_covered_tokens_, num_tokens);
  blocks->num_committed_blocks_ = std::min(blocks->num_committed_blocks_, num_tokens / size);
  return true;
}

std::span<const BlockHash> KvCacheManager::Hashes(const step::Request& request,
                                                  const step::TokenSequence& tokens,
                                                  int32_t num_tokens, RequestBlocks* blocks) {
  const int32_t num_full = num_tokens / options_.block_size;
  ExtendHashes(request, tokens, num_full, blocks);
  return std::span(blocks->hashes_).first(static_cast<size_t>(num_full));
}

void KvCacheManager::Contents(const RequestBlocks& blocks, int32_t begin, int32_t end,
                              std::vector<BlockContent>* contents) const {
  const int32_t size = options_.block_size;
  PM_CHECK(begin % size == 0 && end % size == 0);
  for (int32_t i = begin / size; i < end / size; ++i) {
    for (size_t g = 0; g < blocks.groups_.size(); ++g) {
      contents->push_back({blocks.hashes_[i], GroupAt(g), blocks.groups_[g][i]});
    }
  }
}

void KvCacheManager::Hold(std::span<const BlockId> ids) {
  for (BlockId id : ids) {
    pool_.AddReference(id);
    ++held_[id];
  }
}

void KvCacheManager::Unhold(std::span<const BlockId> ids) {
  for (BlockId id : ids) {
    const auto found = held_.find(id);
    PM_CHECK(found != held_.end());
    if (--found->second == 0) held_.erase(found);
    pool_.Release(id);
  }
}

StatusOr<PinId> KvCacheManager::Pin(std::span<const BlockHash> hashes) {
  std::vector<BlockId> ids;
  for (const BlockHash& hash : hashes) {
    for (size_t g = 0; g < kinds_.size(); ++g) {
      if (const std::optional<BlockId> id = pool_.Find(hash, GroupAt(g))) ids.push_back(*id);
    }
  }
  if (ids.empty()) return NotFound("nothing of the prefix to pin is cached: run it first");
  const auto count = static_cast<int32_t>(ids.size());
  if (num_pinned_blocks_ + count > options_.max_pinned_blocks) {
    return ResourceExhausted("pinning " + std::to_string(count) + " blocks beside " +
                             std::to_string(num_pinned_blocks_) + " pinned ones exceeds " +
                             "max_pinned_blocks, " + std::to_string(options_.max_pinned_blocks));
  }
  Hold(ids);
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
  Unhold(found->second);
  pins_.erase(found);
  return true;
}

void KvCacheManager::Commit(const step::Request& request, const step::TokenSequence& tokens,
                            int32_t num_computed_tokens, RequestBlocks* blocks) {
  // Most calls end here: a decode step fills no block.
  const int32_t size = options_.block_size;
  if (num_computed_tokens < (blocks->num_committed_blocks_ + 1) * size) return;
  if (!options_.enable_prefix_caching || kinds_.empty()) return;
  const int32_t num_full = num_computed_tokens / size;
  ExtendHashes(request, tokens, num_full, blocks);
  for (int32_t i = blocks->num_committed_blocks_; i < num_full; ++i) {
    for (size_t g = 0; g < kinds_.size(); ++g) {
      pool_.Cache(blocks->groups_[g][i], blocks->hashes_[i], GroupAt(g));
    }
  }
  blocks->num_committed_blocks_ = num_full;
}

void KvCacheManager::Free(RequestBlocks* blocks) {
  // Position by position, so that the groups lose the end of a prefix together.
  size_t longest = 0;
  for (const std::vector<BlockId>& table : blocks->groups_) {
    longest = std::max(longest, table.size());
  }
  for (size_t i = longest; i-- > 0;) {
    for (const std::vector<BlockId>& table : blocks->groups_) {
      if (i < table.size()) pool_.Release(table[i]);
    }
  }
  blocks->groups_.clear();
  blocks->num_covered_tokens_ = 0;
  blocks->num_committed_blocks_ = 0;
}

bool KvCacheManager::Reset() {
  if (pool_.num_free() != pool_.num_usable()) return false;
  pool_.Reset();
  return true;
}

Status KvCacheManager::CheckIntegrity(std::span<const RequestBlocks* const> holders) const {
  PM_RETURN_IF_ERROR(pool_.CheckIntegrity());
  std::vector<int32_t> refs(pool_.num_blocks(), 0);
  for (const auto& [id, count] : held_) refs[id.value()] += count;
  for (const RequestBlocks* holder : holders) {
    for (const std::vector<BlockId>& table : holder->groups_) {
      for (BlockId id : table) ++refs[id.value()];
      if (holder->num_committed_blocks_ > static_cast<int32_t>(table.size())) {
        return Internal("KV cache: more blocks committed than held");
      }
    }
    if (!holder->empty() && NumNewBlocks(*holder, holder->num_covered_tokens_) != 0) {
      return Internal("KV cache: fewer blocks held than the covered tokens need");
    }
  }
  for (int32_t i = 0; i < pool_.num_blocks(); ++i) {
    if (refs[i] != pool_.ref_count(BlockId(i))) {
      return Internal("KV cache: block " + std::to_string(i) + " has " +
                      std::to_string(pool_.ref_count(BlockId(i))) + " references, " +
                      std::to_string(refs[i]) + " holders");
    }
  }
  return OkStatus();
}

}  // namespace pagemill::kv_cache
