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
  for (Block& block : blocks) block.used = true;
  blocks[3].reused = blocks[1].reused = true;
  for (int32_t i : {3, 1, 5, 2, 4}) policy->Insert(BlockId(i));
  EXPECT_EQ(Drain(policy.get(), 5), (std::vector<int32_t>{5, 2, 4, 3, 1}));
}

TEST(ReuseEviction, AtMostThreeQuartersOfThePoolAreProtected) {
  std::vector<Block> blocks(9);  // 8 pages: 6 protected
  const auto policy = *MakeEvictionPolicy("reuse", &blocks);
  for (int32_t i = 1; i <= 8; ++i) {
    blocks[i].used = true;
    blocks[i].reused = i > 1;
  }
  for (int32_t i = 1; i <= 8; ++i) policy->Insert(BlockId(i));
  // 2 lost its protection, and is the youngest of the others.
  EXPECT_FALSE(blocks[2].is_protected);
  EXPECT_EQ(Drain(policy.get(), 8), (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(ReuseEviction, ContentIsProtectedAgainOnlyAfterAnotherUse) {
  std::vector<Block> blocks(5);  // 4 pages: 3 protected
  const auto policy = *MakeEvictionPolicy("reuse", &blocks);
  for (int32_t i = 1; i <= 4; ++i) {
    blocks[i].used = blocks[i].reused = true;
    policy->Insert(BlockId(i));
  }
  ASSERT_FALSE(blocks[1].is_protected);
  // Taken out and in without a use, as by a transfer.
  policy->Remove(BlockId(1));
  policy->Insert(BlockId(1));
  EXPECT_FALSE(blocks[1].is_protected);
  policy->Remove(BlockId(1));
  blocks[1].used = true;
  policy->Insert(BlockId(1));
  EXPECT_TRUE(blocks[1].is_protected);
  EXPECT_EQ(Drain(policy.get(), 4), (std::vector<int32_t>{2, 3, 4, 1}));
}

TEST(AdaptiveEviction, BeginsAsLru) {
  std::vector<Block> blocks(6);
  const auto policy = *MakeEvictionPolicy("adaptive", &blocks);
  for (Block& block : blocks) block.used = true;
  blocks[3].reused = true;
  for (int32_t i : {3, 1, 5, 2, 4}) policy->Insert(BlockId(i));
  EXPECT_EQ(Drain(policy.get(), 5), (std::vector<int32_t>{3, 1, 5, 2, 4}));
}

TEST(EvictionPolicy, IntegrityCheckSeesMissingPages) {
  std::vector<Block> blocks(4);
  for (const char* name : {"adaptive", "lru", "reuse"}) {
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
  EXPECT_NE(status.message().find("adaptive, lru, reuse"), std::string::npos);
}

}  // namespace
}  // namespace pagemill::kv_cache
