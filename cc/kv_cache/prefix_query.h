// File: cc/kv_cache/prefix_query.h
// How long a prefix a request could reuse, depending on which blocks are somewhere: in the
// pool, in a tier, in a folder. Each group of layers needs other blocks of it (cache_kind.h).
//
//   const PrefixQuery query = cache.AskFor(request, tokens, num_tokens, match, &blocks);
//   const int32_t n = query.LongestPrefix(what_the_tier_has);       // a ContentFinder
//   for (const ContentKey& key : query.Needed(n)) Load(key);
//
// Everything needed of the blocks in front of the requested ones is there already. Borrows groups
// and hashes. Thread safety: that of the finder.
#ifndef PAGEMILL_CC_KV_CACHE_PREFIX_QUERY_H_
#define PAGEMILL_CC_KV_CACHE_PREFIX_QUERY_H_

#include <cstdint>
#include <span>
#include <vector>

#include "cc/kv_cache/block.h"
#include "cc/kv_cache/block_hash.h"
#include "cc/kv_cache/kinds/cache_kind.h"
#include "cc/kv_cache/tiers/content_key.h"

namespace pagemill::kv_cache {

class PrefixQuery {
 public:
  struct Group {
    GroupId id;
    const CacheKind* kind;
    int32_t stride;  // blocks of the cache's size in one of the group's
    CacheKind::Traits traits;
  };
  struct Blocks {
    std::span<const BlockHash> hashes;  // from the start of the sequence
    int32_t num_there = 0;              // of those, in front; the others are asked for
    int32_t block_size = 0;             // tokens
  };

  // Groups whose prefixes nest come first.
  PrefixQuery(std::span<const Group> groups, const Blocks& blocks, const RequestShape& shape = {})
      : groups_(groups), blocks_(blocks), shape_(shape) {}

  // Those of the blocks that are asked for.
  std::span<const BlockHash> hashes() const { return blocks_.hashes.subspan(NumThere()); }

  // The most blocks, counted from the first one asked for, after which every group can go on.
  int32_t LongestPrefix(const ContentFinder& finder) const;
  // The same, of at most `max_blocks` and perhaps whatever groups with checkpoints have.
  int32_t LongestPrefix(const ContentFinder& finder, int32_t max_blocks,
                        bool with_checkpoints) const;

  // What has to be there to go on after so many of the blocks asked for, in the order of the
  // sequence.
  std::vector<ContentKey> Needed(int32_t num_blocks) const;

 private:
  size_t NumThere() const { return static_cast<size_t>(blocks_.num_there); }

  std::span<const Group> groups_;
  Blocks blocks_;
  RequestShape shape_;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_PREFIX_QUERY_H_
