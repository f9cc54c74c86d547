#include "cc/router/prefix_index.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::router {
namespace {

using kv_cache::BlockHash;

BlockHash HashOf(uint64_t number) {
  BlockHash hash;
  hash.words = {number * 0x9E3779B97F4A7C15u, number * 0xBF58476D1CE4E5B9u + 1, 0, 0};
  return hash;
}

std::vector<int32_t> Found(const PrefixIndex& index, uint64_t number) {
  std::vector<int32_t> engines = {-7};
  index.Find(HashOf(number), &engines);
  return engines;
}

TEST(PrefixIndex, FindsTheEnginesThatHaveABlockNewestFirst) {
  PrefixIndex index(64);
  EXPECT_TRUE(Found(index, 1).empty());
  index.Add(HashOf(1), 3);
  index.Add(HashOf(1), 5);
  index.Add(HashOf(1), 3);
  EXPECT_EQ(Found(index, 1), (std::vector<int32_t>{3, 5}));
  index.Remove(HashOf(1), 3);
  index.Remove(HashOf(1), 4);
  EXPECT_EQ(Found(index, 1), (std::vector<int32_t>{5}));
}

TEST(PrefixIndex, TheOldestOfABucketMakesRoom) {
  PrefixIndex index(1);  // one bucket
  for (int32_t engine = 0; engine <= PrefixIndex::kWays; ++engine) index.Add(HashOf(1), engine);
  const std::vector<int32_t> engines = Found(index, 1);
  EXPECT_EQ(engines.size(), PrefixIndex::kWays);
  EXPECT_EQ(engines.front(), PrefixIndex::kWays);
  EXPECT_EQ(engines.back(), 1);
}

// With room for everything, the index says what a map says.
TEST(PrefixIndex, EqualsAMapWhileThereIsRoom) {
  std::mt19937 random(7);
  PrefixIndex index(1 << 16);
  std::map<uint64_t, std::set<int32_t>> model;
  for (int i = 0; i < 4000; ++i) {
    const uint64_t number = random() % 500;
    const auto engine = static_cast<int32_t>(random() % 3);
    switch (random() % 16) {
      case 0:
        index.RemoveAll(engine);
        for (auto& [unused, engines] : model) engines.erase(engine);
        break;
      case 1:
      case 2:
      case 3:
        index.Remove(HashOf(number), engine);
        model[number].erase(engine);
        break;
      default:
        index.Add(HashOf(number), engine);
        model[number].insert(engine);
    }
    std::vector<int32_t> engines = Found(index, number);
    std::sort(engines.begin(), engines.end());
    EXPECT_EQ(engines, std::vector<int32_t>(model[number].begin(), model[number].end()));
  }
}

}  // namespace
}  // namespace pagemill::router
