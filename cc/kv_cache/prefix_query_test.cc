#include "cc/kv_cache/prefix_query.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "cc/kv_cache/testing/made_query.h"
#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

BlockHash Hash(int i) { return BlockHash{{static_cast<uint64_t>(i) + 1, 0, 0, 0}}; }

std::vector<BlockHash> Hashes(int count) {
  std::vector<BlockHash> hashes;
  for (int i = 0; i < count; ++i) hashes.push_back(Hash(i));
  return hashes;
}

// Pairs of group and block.
using Contents = std::set<std::pair<int, int>>;

class Found final : public ContentFinder {
 public:
  explicit Found(const Contents& contents) : contents_(contents) {}
  bool Has(const BlockHash& hash, GroupId group) const override {
    return contents_.contains({group.value(), static_cast<int>(hash.words[0]) - 1});
  }

 private:
  const Contents& contents_;
};

Contents NeededOf(const PrefixQuery& query, int32_t num_blocks) {
  Contents needed;
  for (const ContentKey& key : query.Needed(num_blocks)) {
    needed.insert({key.group.value(), static_cast<int>(key.hash.words[0]) - 1});
  }
  return needed;
}

constexpr int kFull = 0, kWindow = 1;
// A token sees the 4 before it, a block.
const std::vector<step::KvGroupOptions> kGroups = {{.kind = "full"},
                                                   {.kind = "sliding_window", .window_tokens = 5}};

TEST(PrefixQuery, AWindowNeedsItsLastBlocksOnly) {
  const MadeQuery made(Hashes(6), kGroups);
  Contents there = {{kWindow, 4}};
  for (int i = 0; i < 6; ++i) there.insert({kFull, i});
  EXPECT_EQ(made.query().LongestPrefix(Found(there)), 5);
  EXPECT_EQ(NeededOf(made.query(), 5),
            (Contents{{kFull, 0}, {kFull, 1}, {kFull, 2}, {kFull, 3}, {kFull, 4}, {kWindow, 4}}));
  there.erase({kFull, 4});
  EXPECT_EQ(made.query().LongestPrefix(Found(there)), 0) << "no window ends at block 4";
  there.insert({kWindow, 2});
  EXPECT_EQ(made.query().LongestPrefix(Found(there)), 3);
}

TEST(PrefixQuery, WhatIsThereIsNotAskedFor) {
  const MadeQuery made(Hashes(6), kGroups, /*num_there=*/2);
  EXPECT_EQ(made.query().hashes().size(), 4u);
  EXPECT_EQ(made.query().LongestPrefix(Found({})), 0);
  const Contents there = {{kFull, 2}, {kFull, 3}, {kWindow, 3}};
  EXPECT_EQ(made.query().LongestPrefix(Found(there)), 2);
  EXPECT_EQ(NeededOf(made.query(), 2), there);
  EXPECT_TRUE(made.query().Needed(0).empty());
}

TEST(PrefixQuery, LargerBlocksEndWhereTheirLastOneDoes) {
  const MadeQuery made(Hashes(6), {{.kind = "full"}, {.kind = "full", .block_size = 8}});
  Contents there = {{1, 1}, {1, 3}};
  for (int i = 0; i < 6; ++i) there.insert({0, i});
  EXPECT_EQ(made.query().LongestPrefix(Found(there)), 4);
  EXPECT_EQ(NeededOf(made.query(), 4), (Contents{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 1}, {1, 3}}));
}

// The longest prefix is the longest of which everything needed is there.
TEST(PrefixQuery, IsTheLongestOneOfWhichAllIsThere) {
  std::mt19937 random(3);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  int num_found = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<step::KvGroupOptions> groups;
    for (int g = 0; g < 1 + pick(3); ++g) {
      if (pick(2) == 0) {
        groups.push_back({.kind = "full", .block_size = pick(3) == 0 ? 8 : 4});
      } else {
        groups.push_back({.kind = "sliding_window", .window_tokens = 1 + pick(14)});
      }
    }
    const int count = 1 + pick(8), num_there = pick(2) == 0 ? 0 : pick(count) / 2 * 2;
    const int missing = pick(6);
    Contents there;
    for (int g = 0; g < static_cast<int>(groups.size()); ++g) {
      for (int i = num_there; i < count; ++i) {
        if (pick(10) >= missing) there.insert({g, i});
      }
    }
    const MadeQuery made(Hashes(count), groups, num_there);
    int32_t longest = 0;
    for (int32_t n = 1; n <= count - num_there; ++n) {
      bool whole = true;
      for (const step::KvGroupOptions& group : groups) {
        whole =
            whole && (num_there + n) * MadeQuery::kBlockSize % std::max(group.block_size, 4) == 0;
      }
      for (const auto& content : NeededOf(made.query(), n)) {
        whole = whole && there.contains(content);
      }
      if (whole) longest = n;
    }
    ASSERT_EQ(made.query().LongestPrefix(Found(there)), longest) << round;
    num_found += longest > 0;
  }
  EXPECT_GT(num_found, 1000);
}

}  // namespace
}  // namespace pagemill::kv_cache
