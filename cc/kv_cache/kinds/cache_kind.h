// File: cc/kv_cache/kinds/cache_kind.h
// What the layers of one group need of the cache, as a function of how far a request is. One
// implementation per kind; kinds.cc has the table.
#ifndef PAGEMILL_CC_KV_CACHE_KINDS_CACHE_KIND_H_
#define PAGEMILL_CC_KV_CACHE_KINDS_CACHE_KIND_H_

#include <cstdint>
#include <span>
#include <vector>

#include "cc/kv_cache/block_pool.h"

namespace pagemill::kv_cache {

// Obligations of an implementer:
// 1. Both functions depend on their arguments only.
// 2. NumBlocks() never shrinks as the number of tokens grows, and changes only from a multiple of
// the
//    block size to the next token.
// 3. FindPrefix() appends to `found` the blocks for the longest leading part of `hashes` after
// which a
//    request can go on, one per hash, and takes no references.
class CacheKind {
 public:
  virtual ~CacheKind() = default;
  // Length of the block table of a request with that many tokens in the cache.
  virtual int32_t NumBlocks(int32_t num_tokens) const = 0;
  virtual void FindPrefix(std::span<const BlockHash> hashes, GroupId group, const BlockPool& pool,
                          std::vector<BlockId>* found) const = 0;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_KINDS_CACHE_KIND_H_
