#include <vector>

#include "cc/kv_cache/eviction/policies.h"
#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

// Takes the pages out in the order of eviction.
std::vector<int32_t> Drain(EvictionPolicy* policy, int32_t count) {
  std::vector<int32_t> order;
  for (int32_t left = count; left > 0; --left) {
    EXPECT_TRUE(policy->CheckIntegrity(left).ok());
    const BlockId id = policy->Victim();
    policy->Remove(id);
    order.push_back(id.value());
  }
  return order;
}

TEST(LruEviction, OldestFirstWhateverWasReused) {
  std::vector<Block> blocks(6);
  const auto policy = *MakeEvictionPolicy("lru", &blocks);
  blocks[3].reused = true;
  for (int32_t i : {3, 1, 5, 2, 4}) policy->Insert(BlockId(i));
  policy->Remove(BlockId(5));
  policy->Insert(BlockId(5));
  EXPECT_EQ(Drain(policy.get(), 5), (std::vector<int32_t>{3, 1, 2, 4, 5}));
}

TEST(ReuseEviction, ReusedContentGoesLast) {
  std::vector<Block> blocks(6);
  const auto policy = *MakeEvictionPolicy("reuse", &blocks);
  blocks[3].reused = blocks[1].reused = true;
  for (int32_t i : {3, 1, 5, 2, 4}) policy->Insert(BlockId(i));
  EXPECT_EQ(Drain(policy.get(), 5), (std::vector<int32_t>{5, 2, 4, 3, 1}));
}

TEST(ReuseEviction, AtMostThreeQuartersOfThePoolAreProtected) {
  std::vector<Block> blocks(9);  // 8 pages: 6 protected
  const auto policy = *MakeEvictionPolicy("reuse", &blocks);
  for (int32_t i = 1; i <= 8; ++i) blocks[i].reused = i > 1;
  for (int32_t i = 1; i <= 8; ++i) policy->Insert(BlockId(i));
  // 2 lost its protection, and is the youngest of the others.
  EXPECT_FALSE(blocks[2].reused);
  EXPECT_EQ(Drain(policy.get(), 8), (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(EvictionPolicy, IntegrityCheckSeesMissingPages) {
  std::vector<Block> blocks(4);
  for (const char* name : {"lru", "reuse"}) {
    const auto policy = *MakeEvictionPolicy(name, &blocks);
    policy->Insert(BlockId(1));
    EXPECT_TRUE(policy->CheckIntegrity(1).ok());
    EXPECT_FALSE(policy->CheckIntegrity(2).ok());
  }
}

TEST(EvictionPolicy, AnUnknownNameIsRefused) {
  std::vector<Block> blocks(2);
  const Status status = MakeEvictionPolicy("random", &blocks).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("lru, reuse"), std::string::npos);
}

}  // namespace
}  // namespace pagemill::kv_cache
