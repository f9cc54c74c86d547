// The operations of kv_cache_property_test, more than a million of them.
#include "cc/kv_cache/testing/cache_layouts.h"
#include "cc/kv_cache/testing/kv_cache_simulation.h"
#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

TEST(KvCacheSoak, LongRunsOnEveryKind) {
  KvCacheSimulation::Counts counts;
  uint32_t seed = 1001;
  for (const KvCacheOptions& options : CacheLayouts()) {
    Simulate(options, seed++, 8000, &counts);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(counts.hit_tokens, 100000);
}

TEST(KvCacheSoak, ManyRandomLayouts) {
  KvCacheSimulation::Counts counts;
  for (uint32_t seed = 1001; seed <= 2200 && !testing::Test::HasFailure(); ++seed) {
    Simulate(RandomCacheLayout(seed), seed, 600, &counts);
  }
  EXPECT_GT(counts.hit_tokens, 100000);
}

}  // namespace
}  // namespace pagemill::kv_cache
