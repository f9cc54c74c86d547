// File: cc/kv_cache/tiers/content_key.h
// What a block of a tier holds: a hash and the group of layers it is for.
#ifndef PAGEMILL_CC_KV_CACHE_TIERS_CONTENT_KEY_H_
#define PAGEMILL_CC_KV_CACHE_TIERS_CONTENT_KEY_H_

#include <cstddef>
#include <cstdint>

#include "cc/kv_cache/block.h"
#include "cc/kv_cache/block_hash.h"

namespace pagemill::kv_cache {

struct ContentKey {
  BlockHash hash;
  GroupId group;
  friend bool operator==(const ContentKey&, const ContentKey&) = default;
};

// Hashes are uniform already.
struct ContentKeyHash {
  size_t operator()(const ContentKey& key) const {
    return static_cast<size_t>(key.hash.words[0] + key.group.value() * 0x9E3779B97F4A7C15u);
  }
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_TIERS_CONTENT_KEY_H_
