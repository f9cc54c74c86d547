// File: cc/kv_cache/eviction/policies.h
// The table of eviction policies: name -> implementation.
#ifndef PAGEMILL_CC_KV_CACHE_EVICTION_POLICIES_H_
#define PAGEMILL_CC_KV_CACHE_EVICTION_POLICIES_H_

#include <memory>
#include <string_view>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/eviction/eviction_policy.h"

namespace pagemill::kv_cache {

// For the pages of `blocks`, which outlives the policy. kInvalidArgument lists the known names.
StatusOr<std::unique_ptr<EvictionPolicy>> MakeEvictionPolicy(std::string_view name,
                                                             std::vector<Block>* blocks);

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_EVICTION_POLICIES_H_
