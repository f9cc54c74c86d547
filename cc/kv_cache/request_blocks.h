// File: cc/kv_cache/request_blocks.h
// What one request holds of the KV cache: a block table per group. Owned by whoever owns the
// request, changed by the KvCacheManager only; must be given back with KvCacheManager::Free before
// it is destroyed.
#ifndef PAGEMILL_CC_KV_CACHE_REQUEST_BLOCKS_H_
#define PAGEMILL_CC_KV_CACHE_REQUEST_BLOCKS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "cc/kv_cache/block.h"

namespace pagemill::kv_cache {

class RequestBlocks {
 public:
  // One block table per group; empty while the request holds nothing.
  const std::vector<std::vector<BlockId>>& groups() const { return groups_; }
  bool empty() const { return groups_.empty(); }
  // Hashes of the leading full blocks of the known tokens, as far as anybody asked. They stay when
  // the blocks are freed.
  std::span<const BlockHash> hashes() const { return hashes_; }

 private:
  friend class KvCacheManager;

  std::vector<std::vector<BlockId>> groups_;
  // Hash chain over the leading full blocks of the known tokens, as far as anybody asked. It
  // depends on the tokens only, so it survives Free().
  std::vector<BlockHash> hashes_;
  int32_t num_covered_tokens_ = 0;    // for so many tokens no further block is needed
  int32_t num_committed_blocks_ = 0;  // leading blocks whose content the prefix cache was told of
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_REQUEST_BLOCKS_H_
