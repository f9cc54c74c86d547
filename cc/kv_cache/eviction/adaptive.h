// File: cc/kv_cache/eviction/adaptive.h
// LRU that protects reused content if, and as far as, the traffic rewards it.
//
// SegmentedLru with 0, 1, 2 or 3 quarters of the pool protected; 0 is LRU. Which is best depends on
// the traffic: if conversations that take turns do not fit into the pool, LRU evicts each just
// before it continues, and protection keeps some of them; if most content is used twice, at a
// distance, protection takes the room of what comes again. So a MiniatureCache for each of the four
// counts what it would hit, and the pool follows the best one. LRU is preferred unless another is
// clearly better.
//
// The sample is the contents whose hash has certain bits, at most 1,000 of a pool, so the models
// cost at most 260 KiB and, in a large pool, a few ns a block. A use counts when the page is
// released.
#ifndef PAGEMILL_CC_KV_CACHE_EVICTION_ADAPTIVE_H_
#define PAGEMILL_CC_KV_CACHE_EVICTION_ADAPTIVE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "cc/kv_cache/eviction/eviction_policy.h"
#include "cc/kv_cache/eviction/miniature_cache.h"
#include "cc/kv_cache/eviction/segmented_lru.h"

namespace pagemill::kv_cache {

class AdaptiveEviction final : public EvictionPolicy {
 public:
  explicit AdaptiveEviction(std::vector<Block>* blocks);

  void Insert(BlockId id) override;
  void Remove(BlockId id) override;
  BlockId Victim() const override { return order_.Victim(); }
  Status CheckIntegrity(int32_t num_pages) const override;

 private:
  static constexpr int32_t kNumModels = 4;

  void Observe(const Block& block);
  void Choose();
  // Hits, with a preference for LRU.
  int64_t Score(int32_t quarters) const;

  std::vector<Block>* blocks_;
  SegmentedLru order_;
  int32_t num_named_ = 0;       // pages in order_ that have a hash: first pages of blocks
  uint64_t sample_mask_ = 0;    // content is in the sample if these bits of its hash are 0
  int32_t sample_capacity_;     // pages of the pool that the sample stands for
  int32_t num_uses_ = 0;        // of the sample, since the last choice
  int32_t chosen_ = 0;          // index of the model that the pool follows
  std::array<int64_t, kNumModels> hits_{};  // in 1/1024, older ones count less
  std::array<std::unique_ptr<MiniatureCache>, kNumModels> models_;  // by protected quarters
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_EVICTION_ADAPTIVE_H_
