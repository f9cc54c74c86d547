// File: cc/kv_cache/block_ages.h
// How old the content of KV blocks becomes: from its entry into the prefix cache to its eviction,
// for how long no request held it before that, and from one use to the next. Tells whether a larger
// cache would find more: content that is evicted sooner than it is usually used again.
//
//   BlockAges ages(/*sample=*/0.01);
//   ages.SetTime(clock.NowNanos());            // before what follows happens
//   if (ages.Samples(hash)) ages.Stored(page);
//   ...
//   ages.Evicted(page);
//   ages.Forgotten(page);
//   ages.stats().kv_block_lifetime.sum_s;
//
// Measures a sample of the contents, chosen by their hash: the same ones each time. A block of
// several pages counts once, by its first page. Content that leaves the cache without being evicted
// (a reset, a superseded state) has no lifetime.
//
// O(1) each; memory for one entry for each block of the sample. Thread safety: none.
#ifndef PAGEMILL_CC_KV_CACHE_BLOCK_AGES_H_
#define PAGEMILL_CC_KV_CACHE_BLOCK_AGES_H_

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "cc/base/duration_histogram.h"
#include "cc/base/field_info.h"
#include "cc/kv_cache/block.h"

namespace pagemill::kv_cache {

struct BlockAgeStats {
  DurationHistogram kv_block_lifetime;
  DurationHistogram kv_block_idle_before_evict;
  DurationHistogram kv_block_reuse_gap;

  template <typename Visitor>
  static void Visit(Visitor&& visit) {
    using S = BlockAgeStats;
    visit("kv_block_lifetime", &S::kv_block_lifetime,
          Histogram("how long an evicted KV block had been in the prefix cache, of a sample "
                    "(--kv-cache-metrics)",
                    "kv_block_lifetime_seconds"));
    visit("kv_block_idle_before_evict", &S::kv_block_idle_before_evict,
          Histogram("for how long no request had held an evicted KV block, of the same sample",
                    "kv_block_idle_before_evict_seconds"));
    visit("kv_block_reuse_gap", &S::kv_block_reuse_gap,
          Histogram("from one use of a cached KV block to the next, of the same sample; the first "
                    "use is its computation",
                    "kv_block_reuse_gap_seconds"));
  }
};

class BlockAges {
 public:
  // `sample`: the share of the contents that is measured, above 0 and at most 1.
  explicit BlockAges(double sample);

  // The present for the calls below, in nanoseconds of any clock that never goes back.
  void SetTime(int64_t now_ns) { now_ns_ = now_ns; }

  // True if content with this hash is of the sample; false for the empty hash.
  bool Samples(const BlockHash& hash) const { return !hash.empty() && hash.words[0] <= last_word_; }

  // `page`, which a request holds, has content of the sample. The rest is of such pages.
  void Stored(BlockId page);
  void Reused(BlockId page);             // a request continues from it
  void Released(BlockId page);           // no request holds it any more
  void Moved(BlockId from, BlockId to);  // another page has the content from now on, and is held
  void Evicted(BlockId page);            // it will be Forgotten() to make room
  void Forgotten(BlockId page) { blocks_.erase(page); }

  const BlockAgeStats& stats() const { return stats_; }
  size_t num_blocks() const { return blocks_.size(); }
  bool Knows(BlockId page) const { return blocks_.contains(page); }

 private:
  struct Times {  // when, in nanoseconds of SetTime()
    int64_t stored;
    int64_t used;  // the last request came to it
    int64_t released;
  };
  double SecondsSince(int64_t then_ns) const {
    return static_cast<double>(now_ns_ - then_ns) / 1e9;
  }

  const uint64_t last_word_;  // the largest first word of a hash in the sample
  int64_t now_ns_ = 0;
  std::unordered_map<BlockId, Times> blocks_;
  BlockAgeStats stats_;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_BLOCK_AGES_H_
