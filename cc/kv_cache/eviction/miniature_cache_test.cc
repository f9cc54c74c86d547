#include "cc/kv_cache/eviction/miniature_cache.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

constexpr GroupId kGroup{0};

BlockHash HashOf(uint64_t content) { return BlockHash{{content % 5, content + 1, 0, 0}}; }

// Segmented LRU as plain lists, least recently used first.
struct Model {
  std::vector<uint64_t> others, kept;

  bool Use(uint64_t content, size_t capacity, size_t max_kept) {
    const bool hit = std::erase(others, content) + std::erase(kept, content) > 0;
    if (!hit && others.size() + kept.size() == capacity) {
      std::vector<uint64_t>& victims = others.empty() ? kept : others;
      victims.erase(victims.begin());
    }
    (hit ? kept : others).push_back(content);
    if (kept.size() > max_kept) {
      others.push_back(kept.front());
      kept.erase(kept.begin());
    }
    return hit;
  }
};

TEST(MiniatureCache, HitsWhatASegmentedLruHits) {
  for (int32_t quarters : {0, 1, 2, 3}) {
    MiniatureCache cache(12, quarters);
    Model model;
    std::mt19937 random(7);
    int num_hits = 0;
    for (int i = 0; i < 3000; ++i) {
      const auto content = std::min<uint64_t>(random() % 30, random() % 30);
      const bool hit = model.Use(content, 12, static_cast<size_t>(3 * quarters));
      ASSERT_EQ(cache.Use(HashOf(content), kGroup, 12), hit) << i;
      ASSERT_TRUE(cache.CheckIntegrity().ok());
      num_hits += hit;
    }
    EXPECT_GT(num_hits, 1000);
    EXPECT_LT(num_hits, 2700);
  }
}

TEST(MiniatureCache, GroupsDoNotShareContent) {
  MiniatureCache cache(4, 0);
  EXPECT_FALSE(cache.Use(HashOf(1), GroupId(0), 4));
  EXPECT_FALSE(cache.Use(HashOf(1), GroupId(1), 4));
  EXPECT_TRUE(cache.Use(HashOf(1), GroupId(0), 4));
}

TEST(MiniatureCache, ASmallerBoundTakesTheOldestTwoAtATime) {
  MiniatureCache cache(6, 0);
  for (uint64_t i = 1; i <= 6; ++i) EXPECT_FALSE(cache.Use(HashOf(i), kGroup, 6));
  EXPECT_FALSE(cache.Use(HashOf(7), kGroup, 3));  // 1 and 2 leave
  EXPECT_TRUE(cache.Use(HashOf(3), kGroup, 3));
  EXPECT_FALSE(cache.Use(HashOf(8), kGroup, 3));  // 4 and 5 leave
  EXPECT_FALSE(cache.Use(HashOf(9), kGroup, 3));  // 6 and 7 leave
  EXPECT_TRUE(cache.Use(HashOf(3), kGroup, 3));
  EXPECT_FALSE(cache.Use(HashOf(6), kGroup, 3));
  EXPECT_TRUE(cache.CheckIntegrity().ok());
}

}  // namespace
}  // namespace pagemill::kv_cache
