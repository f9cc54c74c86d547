// File: cc/kv_cache/kv_cache_options.h
// Size and shape of the KV cache.
#ifndef PAGEMILL_CC_KV_CACHE_KV_CACHE_OPTIONS_H_
#define PAGEMILL_CC_KV_CACHE_KV_CACHE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/block_hash.h"

namespace pagemill::kv_cache {

struct KvCacheOptions {
  int32_t num_blocks = 0;   // pages of the pool, the null block included
  int32_t block_size = 16;  // tokens of one page
  bool enable_prefix_caching = true;
  HashAlgorithm hash_algorithm = HashAlgorithm::kXxh3_128;
  // Layers with equal needs form a group with its own block table; all groups take pages from the
  // one pool. Names of kinds/kinds.h. Empty for a model that keeps no KV.
  std::vector<std::string> groups = {"full"};

  // kInvalidArgument names the field, its value and its range.
  Status Validate() const;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_KV_CACHE_OPTIONS_H_
