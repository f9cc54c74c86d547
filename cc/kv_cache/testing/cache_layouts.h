// File: cc/kv_cache/testing/cache_layouts.h
// Shapes of a KV cache for tests: which groups of layers, with which needs, in how large a pool.
#ifndef PAGEMILL_CC_KV_CACHE_TESTING_CACHE_LAYOUTS_H_
#define PAGEMILL_CC_KV_CACHE_TESTING_CACHE_LAYOUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/kv_cache/kv_cache_options.h"

namespace pagemill::kv_cache {

// Every kind, alone and beside others. For requests of at most 100 tokens.
std::vector<KvCacheOptions> CacheLayouts();
// One to four groups of any kinds. The same for the same seed.
KvCacheOptions RandomCacheLayout(uint32_t seed);
// For messages.
std::string Describe(const KvCacheOptions& options);

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_TESTING_CACHE_LAYOUTS_H_
