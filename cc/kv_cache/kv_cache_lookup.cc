// Finding cached prefixes.
#include <algorithm>

#include "cc/kv_cache/kv_cache_manager.h"

namespace pagemill::kv_cache {
namespace {

class PoolContent final : public ContentFinder {
 public:
  explicit PoolContent(const BlockPool& pool) : pool_(pool) {}
  bool Has(const BlockHash& hash, GroupId group) const override {
    return pool_.Find(hash, group).has_value();
  }

 private:
  const BlockPool& pool_;
};

}  // namespace

void KvCacheManager::ExtendHashes(const step::Request& request, const step::TokenSequence& tokens,
                                  int32_t num_blocks, RequestBlocks* blocks) {
  std::vector<BlockHash>& hashes = blocks->hashes_;
  const int32_t size = options_.block_size;
  for (auto i = static_cast<int32_t>(hashes.size()); i < num_blocks; ++i) {
    const BlockHash parent = hashes.empty() ? BlockHash() : hashes.back();
    const int32_t begin = i * size, end = begin + size;
    hashes.push_back(hasher_.Hash(parent, ExtraKeys(request, begin, end), tokens, begin, end));
  }
}

std::span<const BlockHash> KvCacheManager::Hashes(const step::Request& request,
                                                  const step::TokenSequence& tokens,
                                                  int32_t num_tokens, RequestBlocks* blocks) {
  const int32_t num_full = std::clamp(num_tokens, 0, tokens.size()) / options_.block_size;
  ExtendHashes(request, tokens, num_full, blocks);
  return std::span(blocks->hashes_).first(static_cast<size_t>(num_full));
}

PrefixQuery KvCacheManager::AskFor(const step::Request& request, const step::TokenSequence& tokens,
                                   int32_t num_tokens, const PrefixMatch& match,
                                   RequestBlocks* blocks) {
  const int32_t size = options_.block_size;
  return {query_groups_,
          {.hashes = Hashes(request, tokens, num_tokens, blocks),
           .num_there = match.num_tokens / size,
           .block_size = size},
          blocks->shape_};
}

PrefixMatch KvCacheManager::FindPrefix(const step::Request& request,
                                       const step::TokenSequence& tokens, RequestBlocks* blocks) {
  PrefixMatch match;
  const int32_t num_full = (tokens.size() - 1) / options_.block_size;
  if (!caching_ || !blocks->empty() || num_full <= 0) return match;
  ExtendHashes(request, tokens, num_full, blocks);
  const PrefixQuery query(query_groups_,
                          {.hashes = blocks->hashes_, .block_size = options_.block_size},
                          blocks->shape_);
  const PoolContent pool(pool_);
  int32_t length = num_full;
  if (checkpoints_) {
    const int32_t without = query.LongestPrefix(pool, num_full, /*with_checkpoints=*/false);
    length = query.LongestPrefix(pool, without, /*with_checkpoints=*/true);
    blocks->shape_.branch_tokens = length < without ? without * options_.block_size : 0;
  } else {
    length = query.LongestPrefix(pool, num_full, /*with_checkpoints=*/true);
  }
  match.num_tokens = length * options_.block_size;
  if (length > 0) FillMatch(*blocks, &match);
  return match;
}

int32_t KvCacheManager::NumEvictedTokens(const RequestBlocks& blocks,
                                         const PrefixMatch& match) const {
  const std::span<const BlockHash> hashes = blocks.hashes();
  const auto num_found = static_cast<size_t>(match.num_tokens / options_.block_size);
  const auto missing = hashes.begin() + static_cast<int64_t>(std::min(num_found, hashes.size()));
  // Behind a block that was never cached, no block was: the search ends there.
  const auto end = std::find_if(missing, hashes.end(), [this](const BlockHash& hash) {
    return !pool_.WasEvicted(hash);
  });
  return static_cast<int32_t>(end - missing) * options_.block_size;
}

void KvCacheManager::FillMatch(const RequestBlocks& blocks, PrefixMatch* match) const {
  match->groups.resize(groups_.size());
  const TokenRange range{match->num_tokens, match->num_tokens};
  for (const Group& group : groups_) {
    std::vector<BlockId>& table = match->groups[group.id.value()];
    const int32_t length = match->num_tokens / group.block_tokens;
    table.reserve(EntryOf(group, length));
    table.assign(EntryOf(group, 0), kNullBlock);
    for (int32_t i = 0; i < length; ++i) {
      if (!group.kind->Needs(i, range, blocks.shape_)) {
        table.insert(table.end(), static_cast<size_t>(group.pages), kNullBlock);
        continue;
      }
      const size_t last = static_cast<size_t>((i + 1) * group.stride - 1);
      BlockId page = *pool_.Find(blocks.hashes_[last], group.id);
      for (int32_t k = 0; k < group.pages; ++k, page = pool_.NextPage(page)) {
        table.push_back(page);
        ++match->num_blocks;
        match->num_free_blocks += pool_.ref_count(page) == 0;
      }
    }
  }
}

}  // namespace pagemill::kv_cache
