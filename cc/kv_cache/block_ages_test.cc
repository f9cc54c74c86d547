#include "cc/kv_cache/block_ages.h"

#include <cstdint>
#include <random>
#include <vector>

#include "cc/kv_cache/block_pool.h"
#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

constexpr GroupId kGroup{0};

BlockHash HashOf(uint64_t content) { return BlockHash{{content, 1, 0, 0}}; }

uint64_t Count(const DurationHistogram& histogram, double seconds) {
  return histogram.counts[DurationHistogram::BucketOf(seconds)];
}

uint64_t Total(const DurationHistogram& histogram) {
  uint64_t total = 0;
  for (uint64_t count : histogram.counts) total += count;
  return total;
}

// A pool of 3 usable pages, all of whose contents are measured.
class BlockAgesTest : public testing::Test {
 protected:
  void SetSeconds(double seconds) { ages_.SetTime(static_cast<int64_t>(seconds * 1e9)); }
  BlockId Store(uint64_t content) {
    const BlockId page = pool_.Allocate();
    pool_.Cache(page, HashOf(content), kGroup);
    return page;
  }
  void TearDown() override { EXPECT_TRUE(pool_.CheckIntegrity().ok()); }

  BlockAges ages_{1};
  BlockPool pool_{4, "lru", nullptr, &ages_};
  const BlockAgeStats& stats_ = ages_.stats();
};

TEST_F(BlockAgesTest, OfWhatIsEvicted) {
  SetSeconds(100);
  const BlockId page = Store(7);
  SetSeconds(110);
  pool_.Release(page);  // while it was held, it was not idle
  for (int i = 0; i < 2; ++i) pool_.Allocate();
  EXPECT_EQ(Total(stats_.kv_block_lifetime), 0u) << "there were free pages";
  SetSeconds(160);
  ASSERT_EQ(pool_.Allocate(), page);
  EXPECT_EQ(Count(stats_.kv_block_lifetime, 60), 1u);
  EXPECT_EQ(stats_.kv_block_lifetime.sum_s, 60);
  EXPECT_EQ(stats_.kv_block_idle_before_evict.sum_s, 50);
  EXPECT_EQ(Total(stats_.kv_block_reuse_gap), 0u);
  EXPECT_EQ(ages_.num_blocks(), 0u);
}

TEST_F(BlockAgesTest, FromOneUseToTheNextWhetherOrNotItIsHeld) {
  SetSeconds(1);
  const BlockId page = Store(7);
  SetSeconds(3);
  pool_.Reuse(page);
  EXPECT_EQ(Count(stats_.kv_block_reuse_gap, 2), 1u);
  pool_.Release(page);
  SetSeconds(4);
  pool_.Release(page);
  SetSeconds(13);
  pool_.Reuse(page);
  EXPECT_EQ(Count(stats_.kv_block_reuse_gap, 10), 1u);
  EXPECT_EQ(stats_.kv_block_reuse_gap.sum_s, 12);
  EXPECT_EQ(Total(stats_.kv_block_lifetime), 0u) << "nothing was evicted";
}

TEST_F(BlockAgesTest, ContentKeepsItsAgeOnAnotherPage) {
  SetSeconds(1);
  const BlockId first = Store(7);
  pool_.Release(first);
  SetSeconds(5);
  const BlockId second = pool_.Allocate();
  ASSERT_NE(second, first);
  pool_.Cache(second, HashOf(7), kGroup);  // computed again; the page that is held stays
  ASSERT_EQ(pool_.Find(HashOf(7), kGroup), second);
  EXPECT_EQ(ages_.num_blocks(), 1u);
  pool_.Release(second);
  SetSeconds(8);
  for (int i = 0; i < 3; ++i) pool_.Allocate();
  EXPECT_EQ(stats_.kv_block_lifetime.sum_s, 7);
  EXPECT_EQ(stats_.kv_block_idle_before_evict.sum_s, 3);
}

TEST_F(BlockAgesTest, WhatIsForgottenHasNoLifetime) {
  const BlockId page = Store(7);
  Store(8);
  SetSeconds(5);
  pool_.Forget(page);
  EXPECT_EQ(ages_.num_blocks(), 1u);
  pool_.Reset();
  EXPECT_EQ(ages_.num_blocks(), 0u);
  EXPECT_EQ(Total(stats_.kv_block_lifetime), 0u);
}

TEST_F(BlockAgesTest, ABlockOfSeveralPagesCountsOnce) {
  const BlockId pages[] = {pool_.Allocate(), pool_.Allocate()};
  pool_.Cache(pages, HashOf(7), kGroup);
  SetSeconds(2);
  for (BlockId page : pages) pool_.Reuse(page);
  EXPECT_EQ(Total(stats_.kv_block_reuse_gap), 1u);
  for (int i = 0; i < 2; ++i) {
    for (BlockId page : pages) pool_.Release(page);
  }
  SetSeconds(3);
  while (pool_.num_free() > 0) pool_.Allocate();
  EXPECT_EQ(Total(stats_.kv_block_lifetime), 1u);
  EXPECT_EQ(stats_.kv_block_idle_before_evict.sum_s, 1);
}

TEST(BlockAges, TheSampleIsAShareOfTheHashes) {
  const BlockAges all(1), some(0.25), few(1e-30);
  EXPECT_FALSE(all.Samples(BlockHash())) << "the empty hash";
  std::mt19937_64 random(1);
  int num_sampled = 0;
  for (int i = 0; i < 10000; ++i) {
    const BlockHash hash{{random(), random(), 0, 0}};
    EXPECT_TRUE(all.Samples(hash));
    EXPECT_FALSE(few.Samples(hash));
    num_sampled += some.Samples(hash);
  }
  EXPECT_NEAR(num_sampled, 2500, 200);
}

TEST(BlockAges, OnlyTheSampleTakesMemory) {
  BlockAges ages(0.5);
  BlockPool pool(9, "lru", nullptr, &ages);
  for (uint64_t i = 0; i < 8; ++i) {
    pool.Cache(pool.Allocate(), HashOf(i % 2 == 0 ? i + 1 : ~i), kGroup);
  }
  EXPECT_EQ(ages.num_blocks(), 4u);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

}  // namespace
}  // namespace pagemill::kv_cache
