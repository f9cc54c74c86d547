// File: cc/kv_cache/evicted_contents.h
// Which contents were evicted lately: tells a prefix that the cache has lost from one that it never
// had.
//
//   EvictedContents evicted(num_blocks);
//   evicted.Add(hash);
//   evicted.Contains(hash);  // true, until other contents take its place
//
// A table with one place for each hash, two places a block, and so few that it stays in the CPU's
// caches: a later eviction may take a place, so contents are forgotten, oldest first on average.
// What it contains by mistake shares a place and 15 bits of its hash with what was evicted. At most
// 128 KiB, O(1), never allocates again. Thread safety: none.
#ifndef PAGEMILL_CC_KV_CACHE_EVICTED_CONTENTS_H_
#define PAGEMILL_CC_KV_CACHE_EVICTED_CONTENTS_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/kv_cache/block.h"

namespace pagemill::kv_cache {

class EvictedContents {
 public:
  explicit EvictedContents(int32_t num_blocks)
      : tags_(std::min(kMaxPlaces, std::bit_ceil(2 * static_cast<size_t>(num_blocks)))),
        mask_(tags_.size() - 1) {}

  void Add(const BlockHash& hash) { tags_[Place(hash)] = Tag(hash); }
  bool Contains(const BlockHash& hash) const { return tags_[Place(hash)] == Tag(hash); }
  void Clear() { std::fill(tags_.begin(), tags_.end(), uint16_t{0}); }

 private:
  static constexpr size_t kMaxPlaces = size_t{1} << 16;

  size_t Place(const BlockHash& hash) const { return hash.words[0] & mask_; }
  // Never 0, which is an empty place.
  static uint16_t Tag(const BlockHash& hash) {
    return static_cast<uint16_t>(hash.words[1] | uint64_t{1});
  }

  std::vector<uint16_t> tags_;
  size_t mask_;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_EVICTED_CONTENTS_H_
