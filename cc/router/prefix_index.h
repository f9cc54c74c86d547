// File: cc/router/prefix_index.h
// Which engines have which blocks of tokens in their caches, as far as is known: a table of fixed
// size from the hashes of blocks (cc/kv_cache/block_hash.h) to engines.
//
//   PrefixIndex index(/*capacity=*/1 << 16);
//   index.Add(hash, engine);
//   index.Find(hash, &engines);
//
// A table of buckets with kWays entries; a new entry takes the place of the oldest in its bucket,
// and of a hash 32 bits are compared beside its bucket. So an answer may be wrong, which costs
// cache hits and nothing else. O(kWays) a call, except RemoveAll(). Thread safety: none.
#ifndef PAGEMILL_CC_ROUTER_PREFIX_INDEX_H_
#define PAGEMILL_CC_ROUTER_PREFIX_INDEX_H_

#include <array>
#include <cstdint>
#include <vector>

#include "cc/kv_cache/block_hash.h"

namespace pagemill::router {

class PrefixIndex {
 public:
  static constexpr int32_t kWays = 8;  // a bucket is a cache line

  // At least `capacity` entries, 8 bytes each.
  explicit PrefixIndex(int64_t capacity);

  // `engine` has the block: the newest entry of its bucket.
  void Add(const kv_cache::BlockHash& hash, int32_t engine);
  void Remove(const kv_cache::BlockHash& hash, int32_t engine);
  // O(capacity)
  void RemoveAll(int32_t engine);
  // Replaces `engines` by those that have the block, the one that was added last first.
  void Find(const kv_cache::BlockHash& hash, std::vector<int32_t>* engines) const;

 private:
  struct Entry {
    uint32_t tag = 0;
    int32_t engine = -1;  // -1: free
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  using Bucket = std::array<Entry, kWays>;  // newest first, free entries last

  size_t IndexOf(const kv_cache::BlockHash& hash) const {
    return hash.words[0] & (buckets_.size() - 1);
  }
  static uint32_t TagOf(const kv_cache::BlockHash& hash) {
    return static_cast<uint32_t>(hash.words[1]);
  }

  std::vector<Bucket> buckets_;  // a power of two
};

}  // namespace pagemill::router

#endif  // PAGEMILL_CC_ROUTER_PREFIX_INDEX_H_
