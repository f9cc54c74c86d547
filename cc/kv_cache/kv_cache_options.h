// File: cc/kv_cache/kv_cache_options.h
// Size and shape of the KV cache.
#ifndef PAGEMILL_CC_KV_CACHE_KV_CACHE_OPTIONS_H_
#define PAGEMILL_CC_KV_CACHE_KV_CACHE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/block_hash.h"
#include "cc/step/kv_group_options.h"

namespace pagemill::kv_cache {

using step::KvGroupOptions;
using step::StateCheckpoints;

struct KvCacheOptions {
  int32_t num_blocks = 0;   // pages of the pool, the null block included
  int32_t block_size = 16;  // tokens of one block, and the grain of prefix hits
  bool enable_prefix_caching = true;
  HashAlgorithm hash_algorithm = HashAlgorithm::kXxh3_128;
  // In the order of the block tables in plans. Empty for a model that keeps no KV.
  std::vector<KvGroupOptions> groups = {KvGroupOptions{}};
  // Most blocks that Pin() may hold at a time; requests cannot count on them. 0 = no pinning.
  int32_t max_pinned_blocks = 0;
  std::string eviction = "adaptive";  // a name of eviction/policies.h
  int32_t max_events = 0;             // KV events that are kept; 0 = none are made
  double block_age_sample = 0;  // share of the cached contents whose age is measured; 0 = none is
  // Most tokens of one request in one step, and steps that run ahead of their results: bounds what
  // groups with windows and states need of a long request. 0 tokens = not known.
  int32_t max_step_tokens = 0;
  int32_t max_steps_in_flight = 2;

  // kInvalidArgument names the field, its value and its range.
  Status Validate() const;
  // Most pages that one request of `num_tokens` tokens holds at a time. The options are valid.
  int32_t MaxPagesOfRequest(int32_t num_tokens) const;
  // Newest tokens by which a request can go back, as it does when drafts are rejected: all, except
  // that groups with recurrent states keep so many of them. The options are valid.
  int32_t MaxRejectedTokens() const;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_KV_CACHE_OPTIONS_H_
