// File: cc/kv_cache/kv_cache_manager.h
// Gives requests the blocks they need for a step, finds cached prefixes, and remembers what was
// computed.
//
//   KvCacheManager cache(options);
//   RequestBlocks blocks;                                       // of one request
//   PrefixMatch match = cache.FindPrefix(request, tokens, &blocks);
//   if (!cache.CanAllocate(blocks, &match, num_tokens)) ...     // wait, or preempt somebody
//   cache.Allocate(num_tokens, &match, &blocks, &plan_entry.new_block_ids);
//   ... the step runs ...
//   cache.Commit(request, tokens, num_computed_tokens, &blocks);
//   cache.Free(&blocks);
//
// Nothing is allocated that the step does not use, and only computed tokens enter the prefix cache.
// At most num_tokens - 1 tokens are found, so that there is always one to compute.
//
// Cost: Allocate and Free O(blocks concerned), Commit O(blocks filled), FindPrefix O(full blocks),
// with each block of a request hashed once in its life. Thread safety: none.
#ifndef PAGEMILL_CC_KV_CACHE_KV_CACHE_MANAGER_H_
#define PAGEMILL_CC_KV_CACHE_KV_CACHE_MANAGER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/block_hash.h"
#include "cc/kv_cache/block_pool.h"
#include "cc/kv_cache/kinds/cache_kind.h"
#include "cc/kv_cache/kv_cache_options.h"
#include "cc/kv_cache/request_blocks.h"
#include "cc/step/request.h"
#include "cc/step/token_sequence.h"

namespace pagemill::kv_cache {

// A cached prefix of a request. Holds no references: valid until the cache changes.
struct PrefixMatch {
  int32_t num_tokens = 0;
  std::vector<std::vector<BlockId>> groups;  // the blocks, per group
  int32_t num_free_blocks = 0;               // how many of them are in the free list
};

class KvCacheManager {
 public:
  // `options` are valid.
  explicit KvCacheManager(const KvCacheOptions& options);

  const KvCacheOptions& options() const { return options_; }
  int32_t num_usable_blocks() const { return pool_.num_usable(); }
  int32_t num_free_blocks() const { return pool_.num_free(); }
  int32_t num_cached_blocks() const { return pool_.num_cached(); }
  int64_t num_evictions() const { return pool_.num_evictions(); }
  // Blocks of all groups that a request with that many tokens in the cache holds.
  int32_t NumBlocks(int32_t num_tokens) const;

  // The longest cached prefix; empty where prefix caching is off. `blocks` holds nothing yet.
  PrefixMatch FindPrefix(const step::Request& request, const step::TokenSequence& tokens,
                         RequestBlocks* blocks);

  // Does `blocks` have room for `num_tokens` tokens as it is?
  static bool Covers(const RequestBlocks& blocks, int32_t num_tokens) {
    return num_tokens <= blocks.num_covered_tokens_;
  }
  // Can `blocks` be extended to `num_tokens` tokens, and leave `num_reserved_blocks` free? `match`
  // is null, or what FindPrefix() just gave.
  bool CanAllocate(const RequestBlocks& blocks, const PrefixMatch* match, int32_t num_tokens,
                   int32_t num_reserved_blocks = 0) const;
  // Extends `blocks`, first by the match. Appends what is new to `new_block_ids`, one list per
  // group; it stays empty where nothing is new. Only after CanAllocate() said yes.
  void Allocate(int32_t num_tokens, const PrefixMatch* match, RequestBlocks* blocks,
                std::vector<std::vector<BlockId>>* new_block_ids);
  // The first `num_computed_tokens` of `tokens` are in the cache: full blocks may be reused.
  void Commit(const step::Request& request, const step::TokenSequence& tokens,
              int32_t num_computed_tokens, RequestBlocks* blocks);
  // Gives all blocks back, the last one first, so that the end of a prefix is evicted before its
  // start.
  void Free(RequestBlocks* blocks);

  // Forgets all cached prefixes. False, and nothing happens, while requests hold blocks.
  bool Reset();

  // Invariants of the parts, and reference counts against `holders`, all that hold blocks.
  // O(blocks).
  Status CheckIntegrity(std::span<const RequestBlocks* const> holders) const;

 private:
  // Hashes the first `num_blocks` blocks of the request's tokens, where not done yet.
  void ExtendHashes(const step::Request& request, const step::TokenSequence& tokens,
                    int32_t num_blocks, RequestBlocks* blocks);
  int32_t NumNewBlocks(const RequestBlocks& blocks, int32_t num_tokens) const;

  const KvCacheOptions options_;
  BlockPool pool_;
  BlockHasher hasher_;
  std::vector<std::unique_ptr<CacheKind>> kinds_;  // one per group
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_KV_CACHE_MANAGER_H_
