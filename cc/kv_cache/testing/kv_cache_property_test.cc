// Random operations on a KvCacheManager, over layouts of groups with every kind of needs.
#include "cc/kv_cache/testing/cache_layouts.h"
#include "cc/kv_cache/testing/kv_cache_simulation.h"
#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

// The operations did reach what they are to test.
void ExpectAllWereReached(const KvCacheSimulation::Counts& counts) {
  EXPECT_GT(counts.hit_tokens, 10000);
  EXPECT_GT(counts.loads, 400);
  EXPECT_GT(counts.rewinds, 100);
  EXPECT_GT(counts.rejected_tokens, 500);
  EXPECT_GT(counts.pins, 100);
  EXPECT_GT(counts.refused_pins, 100);
  EXPECT_GT(counts.evictions, 5000);
  EXPECT_GT(counts.lost_events, 0);
  EXPECT_GT(counts.common_blocks, 1000);
}

TEST(KvCacheProperty, RandomOperationsOnEveryKind) {
  KvCacheSimulation::Counts counts;
  uint32_t seed = 1;
  for (const KvCacheOptions& options : CacheLayouts()) {
    Simulate(options, seed++, 1000, &counts);
    if (testing::Test::HasFailure()) return;
  }
  ExpectAllWereReached(counts);
}

TEST(KvCacheProperty, RandomOperationsOnRandomLayouts) {
  KvCacheSimulation::Counts counts;
  for (uint32_t seed = 1; seed <= 100 && !testing::Test::HasFailure(); ++seed) {
    Simulate(RandomCacheLayout(seed), seed, 500, &counts);
  }
  ExpectAllWereReached(counts);
}

}  // namespace
}  // namespace pagemill::kv_cache
