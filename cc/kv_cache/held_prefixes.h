// File: cc/kv_cache/held_prefixes.h
// Prefixes that are copied out of the cache or into it without a request: saved sessions.
// While one is held, its blocks stay what they are, whatever requests do.
//
//   PAGEMILL_ASSIGN_OR_RETURN(HeldPrefix held, prefixes.HoldCached(request));
//   ... copy the pages of held.contents elsewhere ...
//   prefixes.End(held.id);
//
//   PAGEMILL_ASSIGN_OR_RETURN(HeldPrefix held, prefixes.HoldMissing(request));
//   ... write the pages of held.contents up to the first one that is not to be had ...
//   int32_t num_tokens = prefixes.End(held.id, missing);   // requests find so many
//
// What is written must not be touched by a step in flight: HoldMissing() is for when there is none.
// Cost: O(blocks). Thread safety: that of the cache.
#ifndef PAGEMILL_CC_KV_CACHE_HELD_PREFIXES_H_
#define PAGEMILL_CC_KV_CACHE_HELD_PREFIXES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/strong_id.h"
#include "cc/kv_cache/block_hash.h"
#include "cc/kv_cache/kv_cache_manager.h"
#include "cc/kv_cache/request_blocks.h"
#include "cc/kv_cache/transfer.h"
#include "cc/step/request.h"

namespace pagemill::kv_cache {

// Grows from 1; unique in one cache.
using HeldPrefixId = StrongId<struct HeldPrefixTag, uint64_t>;

struct HeldPrefix {
  HeldPrefixId id;
  int32_t first_token = 0;             // `contents` are the blocks of [first_token, end_token)
  int32_t end_token = 0;               // multiples of prefix_grain_tokens()
  std::vector<BlockContent> contents;  // in the order of the sequence
};

struct PinnedPrefix {
  PinId id;
  int32_t num_tokens = 0;  // leading ones whose KV stays
};

class HeldPrefixes {
 public:
  // The cache outlives this object.
  explicit HeldPrefixes(KvCacheManager* cache) : cache_(cache) {}

  // The full blocks of the request's prompt that are cached. kNotFound if none is, kUnimplemented
  // if a group of layers has several pages per block, kFailedPrecondition without a prefix cache.
  StatusOr<HeldPrefix> HoldCached(const step::Request& request);
  // Blocks for those of its full blocks that are not; `contents` may be empty. Of layers with
  // states the one at the end of the last full block. kResourceExhausted if there is no room.
  StatusOr<HeldPrefix> HoldMissing(const step::Request& request);
  // All of `contents` is in the pages now, except what comes from the block `missing` on. Returns
  // after how many leading tokens requests can go on; 0 if there is no such id.
  int32_t End(HeldPrefixId id, std::optional<BlockHash> missing = std::nullopt);

  // Keeps the cached full blocks of the request's prompt from being evicted, until Unpin() or a
  // reset of the cache. kResourceExhausted above KvCacheOptions::max_pinned_blocks, else the errors
  // of HoldCached().
  StatusOr<PinnedPrefix> Pin(const step::Request& request);
  // False if there is no such pin.
  bool Unpin(PinId id) { return cache_->Unpin(id); }

  size_t size() const { return held_.size(); }
  // Appends all that hold blocks, for KvCacheManager::CheckIntegrity().
  void AppendHolders(std::vector<const RequestBlocks*>* holders) const;

 private:
  struct Held {
    step::Request request;
    RequestBlocks blocks;
    int32_t first_token = 0;
    int32_t end_token = 0;
  };

  Status CheckGroups() const;
  HeldPrefix Add(std::unique_ptr<Held> held, int32_t begin, int32_t end);

  KvCacheManager* const cache_;
  std::map<HeldPrefixId, std::unique_ptr<Held>> held_;
  uint64_t num_held_ = 0;  // ever
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_HELD_PREFIXES_H_
