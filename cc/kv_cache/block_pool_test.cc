#include "cc/kv_cache/block_pool.h"

#include <map>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

constexpr GroupId kGroup{0};

BlockHash HashOf(uint64_t content) {
  // Few distinct first words, so that probe sequences of the prefix cache collide.
  return BlockHash{{content % 3, content + 1, 0, 0}};
}

std::vector<int32_t> AllocateAll(BlockPool* pool) {
  std::vector<int32_t> ids;
  while (pool->num_free() > 0) ids.push_back(pool->Allocate().value());
  return ids;
}

TEST(BlockPool, HandsOutEachBlockOnceAndNeverTheNullBlock) {
  BlockPool pool(5, "lru");
  EXPECT_EQ(pool.num_usable(), 4);
  EXPECT_EQ(AllocateAll(&pool), (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(BlockPool, OrderIsUsedEmptyThenNeverUsedThenCachedByAge) {
  BlockPool pool(8, "lru");
  for (int32_t i = 1; i <= 5; ++i) ASSERT_EQ(pool.Allocate(), BlockId(i));
  for (int32_t i : {2, 4}) pool.Cache(BlockId(i), HashOf(i), kGroup);
  for (int32_t i : {4, 1, 2, 5, 3}) pool.Release(BlockId(i));
  // 1, 5 and 3 hold nothing, the latest first; 6 and 7 were never used; 4 was released before 2.
  ASSERT_TRUE(pool.CheckIntegrity().ok());
  EXPECT_EQ(AllocateAll(&pool), (std::vector<int32_t>{3, 5, 1, 6, 7, 4, 2}));
  EXPECT_EQ(pool.num_evictions(), 2);
  EXPECT_EQ(pool.num_cached(), 0);
}

TEST(BlockPool, RemembersWhatWasEvictedUntilItIsReset) {
  BlockPool pool(4, "lru");
  for (int32_t i = 1; i <= 3; ++i) {
    pool.Allocate();
    pool.Cache(BlockId(i), HashOf(2 * i), kGroup);
  }
  for (int32_t i = 1; i <= 3; ++i) pool.Release(BlockId(i));
  pool.Allocate();
  EXPECT_TRUE(pool.WasEvicted(HashOf(2)));
  EXPECT_FALSE(pool.WasEvicted(HashOf(4)));  // is there
  EXPECT_FALSE(pool.WasEvicted(HashOf(8)));  // never was
  pool.Reset();
  EXPECT_FALSE(pool.WasEvicted(HashOf(2)));
}

TEST(BlockPool, AHitMakesABlockYoungAgain) {
  BlockPool pool(4, "lru");
  for (int32_t i = 1; i <= 3; ++i) {
    pool.Allocate();
    pool.Cache(BlockId(i), HashOf(i), kGroup);
  }
  for (int32_t i = 1; i <= 3; ++i) pool.Release(BlockId(i));
  const std::optional<BlockId> hit = pool.Find(HashOf(1), kGroup);
  ASSERT_EQ(hit, BlockId(1));
  pool.AddReference(*hit);
  EXPECT_EQ(pool.num_free(), 2);
  pool.Release(*hit);
  EXPECT_EQ(AllocateAll(&pool), (std::vector<int32_t>{2, 3, 1}));
}

TEST(BlockPool, OfEqualContentOneBlockStays) {
  BlockPool pool(6, "lru");
  for (int i = 0; i < 3; ++i) pool.Allocate();
  pool.Cache(BlockId(1), HashOf(7), kGroup);
  pool.Cache(BlockId(2), HashOf(7), kGroup);  // 1 is in use: it stays
  EXPECT_EQ(pool.Find(HashOf(7), kGroup), BlockId(1));
  pool.Release(BlockId(1));
  pool.Cache(BlockId(3), HashOf(7), kGroup);  // 1 is not in use any more: 3 will be used later
  EXPECT_EQ(pool.Find(HashOf(7), kGroup), BlockId(3));
  EXPECT_EQ(pool.num_cached(), 1);
  ASSERT_TRUE(pool.CheckIntegrity().ok());
  EXPECT_EQ(pool.Allocate(), BlockId(1));
}

TEST(BlockPool, GroupsDoNotMix) {
  BlockPool pool(4, "lru");
  pool.Allocate();
  pool.Allocate();
  pool.Cache(BlockId(1), HashOf(1), GroupId(0));
  EXPECT_EQ(pool.Find(HashOf(1), GroupId(1)), std::nullopt);
  pool.Cache(BlockId(2), HashOf(1), GroupId(1));
  EXPECT_EQ(pool.Find(HashOf(1), GroupId(0)), BlockId(1));
  EXPECT_EQ(pool.Find(HashOf(1), GroupId(1)), BlockId(2));
}

TEST(BlockPool, ResetForgetsContentAndKeepsReferences) {
  BlockPool pool(5, "lru");
  for (int32_t i = 1; i <= 3; ++i) {
    pool.Allocate();
    pool.Cache(BlockId(i), HashOf(i), kGroup);
  }
  pool.Release(BlockId(2));
  pool.Reset();
  EXPECT_EQ(pool.num_cached(), 0);
  EXPECT_EQ(pool.Find(HashOf(1), kGroup), std::nullopt);
  EXPECT_EQ(pool.ref_count(BlockId(1)), 1);
  ASSERT_TRUE(pool.CheckIntegrity().ok());
  EXPECT_EQ(AllocateAll(&pool), (std::vector<int32_t>{2, 4}));
}

// The same operations on a pool and on a model that says what must be free, held and found.
TEST(BlockPool, RandomOperationsAgreeWithAModel) {
  constexpr int32_t kNumBlocks = 12;
  BlockPool pool(kNumBlocks, "lru");
  std::mt19937 random(7);
  std::map<int32_t, int32_t> refs;      // held blocks
  std::map<int32_t, uint64_t> content;  // of cached blocks, held or free
  std::vector<int32_t> lru;             // free cached blocks, oldest first
  const auto pick = [&random](auto& from) {
    return std::next(from.begin(), static_cast<ptrdiff_t>(random() % from.size()));
  };
  for (int i = 0; i < 100000; ++i) {
    const uint32_t dice = random() % 10;
    if (dice < 3 && pool.num_free() > 0) {
      const int32_t id = pool.Allocate().value();
      ASSERT_FALSE(refs.contains(id));
      if (content.contains(id)) {  // only where all free blocks are cached, and then the oldest
        ASSERT_EQ(static_cast<size_t>(pool.num_free()) + 1, lru.size());
        ASSERT_EQ(id, lru.front());
        lru.erase(lru.begin());
        content.erase(id);
      }
      refs[id] = 1;
    } else if (dice < 6 && !refs.empty()) {
      const auto held = pick(refs);
      const int32_t id = held->first;
      pool.Release(BlockId(id));
      if (--held->second == 0) {
        refs.erase(held);
        if (content.contains(id)) lru.push_back(id);
      }
    } else if (dice < 8 && !refs.empty()) {
      const int32_t id = pick(refs)->first;
      if (content.contains(id)) continue;
      const uint64_t value = random() % 20;
      pool.Cache(BlockId(id), HashOf(value), kGroup);
      bool stays = true;
      for (auto other = content.begin(); other != content.end(); ++other) {
        if (other->second != value) continue;
        stays = !refs.contains(other->first);
        if (stays) {
          std::erase(lru, other->first);
          content.erase(other);
        }
        break;
      }
      if (stays) content[id] = value;
    } else if (!content.empty()) {
      const auto [id, value] = *pick(content);
      const std::optional<BlockId> found = pool.Find(HashOf(value), kGroup);
      ASSERT_EQ(found, BlockId(id));
      pool.AddReference(*found);
      std::erase(lru, id);
      ++refs[id];
    }
    ASSERT_EQ(pool.num_cached(), static_cast<int32_t>(content.size()));
    ASSERT_EQ(pool.num_free(), kNumBlocks - 1 - static_cast<int32_t>(refs.size()));
    const Status status = pool.CheckIntegrity();
    ASSERT_TRUE(status.ok()) << status.ToString() << " after operation " << i;
  }
}

TEST(BlockPool, PagesOfOneBlockComeAndGoTogether) {
  BlockPool pool(8, "lru");
  std::vector<BlockId> pages;
  for (int i = 0; i < 7; ++i) pages.push_back(pool.Allocate());
  const BlockId first[] = {pages[4], pages[1], pages[2]}, second[] = {pages[0], pages[6]};
  EXPECT_TRUE(pool.Cache(first, HashOf(1), kGroup));
  EXPECT_TRUE(pool.Cache(second, HashOf(2), kGroup));
  EXPECT_TRUE(pool.Cache(pages[3], HashOf(3), kGroup));
  EXPECT_EQ(pool.num_cached(), 3);
  EXPECT_EQ(pool.NextPage(pages[4]), pages[1]);
  EXPECT_EQ(pool.NextPage(pages[2]), pages[4]);
  EXPECT_EQ(pool.NextPage(pages[3]), pages[3]);
  ASSERT_TRUE(pool.CheckIntegrity().ok());
  for (BlockId id : pages) pool.Release(id);
  EXPECT_EQ(pool.num_free(), 7);
  ASSERT_TRUE(pool.CheckIntegrity().ok());
  // Page 5 held nothing. The oldest of the others, 0, takes 6 with it.
  EXPECT_EQ(pool.Allocate(), pages[5]);
  EXPECT_EQ(pool.Allocate(), pages[0]);
  EXPECT_EQ(pool.Find(HashOf(2), kGroup), std::nullopt);
  ASSERT_TRUE(pool.CheckIntegrity().ok());
  EXPECT_EQ(pool.Allocate(), pages[6]);
  EXPECT_EQ(pool.num_evictions(), 1);
  // A page of a block that is held keeps it from being handed out, not its neighbours.
  pool.AddReference(pages[1]);
  EXPECT_EQ(pool.Find(HashOf(1), kGroup), pages[4]);
  EXPECT_EQ(pool.Allocate(), pages[4]);
  EXPECT_EQ(pool.Find(HashOf(1), kGroup), std::nullopt);
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_EQ(pool.ref_count(pages[1]), 1);
  ASSERT_TRUE(pool.CheckIntegrity().ok());
  EXPECT_EQ(AllocateAll(&pool), (std::vector<int32_t>{3, 4}));
}

TEST(BlockPool, ForgottenContentIsHandedOutFirst) {
  BlockPool pool(5, "lru");
  for (int32_t i = 1; i <= 2; ++i) {
    pool.Allocate();
    pool.Cache(BlockId(i), HashOf(i), kGroup);
    pool.Release(BlockId(i));
  }
  pool.Forget(BlockId(1));
  pool.Forget(BlockId(1));
  EXPECT_EQ(pool.num_cached(), 1);
  EXPECT_EQ(AllocateAll(&pool), (std::vector<int32_t>{1, 3, 4, 2}));
}

TEST(BlockPool, SupersededContentGoesFirst) {
  BlockPool pool(7, "lru");
  std::vector<BlockId> pages;
  for (int i = 0; i < 6; ++i) pages.push_back(pool.Allocate());
  for (int i : {0, 1, 4, 5}) pool.Cache(pages[i], HashOf(i + 1), kGroup);
  EXPECT_TRUE(pool.Cache(std::span(pages).subspan(2, 2), HashOf(9), kGroup));
  pool.Supersede(pages[5]);  // while it is in use
  for (BlockId id : pages) pool.Release(id);
  pool.Supersede(pages[2]);
  pool.Supersede(pages[1]);
  pool.Supersede(pages[1]);
  ASSERT_TRUE(pool.CheckIntegrity().ok());
  EXPECT_EQ(pool.num_cached(), 5);
  EXPECT_EQ(pool.num_free(), 6);
  EXPECT_EQ(pool.Find(HashOf(2), kGroup), pages[1]);
  // Who reuses it makes it as good as any; a transfer that reads it does not.
  pool.Reuse(pages[1]);
  pool.AddReference(pages[5]);
  ASSERT_TRUE(pool.CheckIntegrity().ok());
  pool.Release(pages[1]);
  pool.Release(pages[5]);
  ASSERT_TRUE(pool.CheckIntegrity().ok());
  // The block of two pages, the transfer's; then by age.
  EXPECT_EQ(AllocateAll(&pool), (std::vector<int32_t>{3, 4, 6, 1, 5, 2}));
}

TEST(BlockPool, ContentWhereRequestsBranchIsNotSuperseded) {
  BlockPool pool(4, "lru");
  for (int32_t i = 1; i <= 3; ++i) {
    pool.Allocate();
    pool.Cache(BlockId(i), HashOf(i), kGroup);
  }
  pool.MarkBranch(BlockId(1));
  for (int k = 0; k < 2; ++k) {
    pool.Reuse(BlockId(2));
    pool.Release(BlockId(2));
  }
  for (int32_t i = 1; i <= 3; ++i) {
    pool.Release(BlockId(i));
    pool.Supersede(BlockId(i));
  }
  ASSERT_TRUE(pool.CheckIntegrity().ok());
  EXPECT_EQ(AllocateAll(&pool), (std::vector<int32_t>{3, 1, 2}));
}

// CheckIntegrity() is what the other tests rely on: it must see damage.
TEST(BlockList, IntegrityCheckSeesDamage) {
  std::vector<Block> blocks(4);
  BlockList list(&blocks);
  for (int32_t i = 1; i < 4; ++i) list.PushBack(BlockId(i));
  EXPECT_TRUE(list.CheckIntegrity().ok());
  blocks[2].ref_count = 1;
  EXPECT_FALSE(list.CheckIntegrity().ok());
  blocks[2].ref_count = 0;
  blocks[2].prev = BlockId(3);
  EXPECT_FALSE(list.CheckIntegrity().ok());
  blocks[2].prev = BlockId(1);
  blocks[1].next = BlockId(3);
  EXPECT_FALSE(list.CheckIntegrity().ok());
}

TEST(PrefixCache, IntegrityCheckSeesDamage) {
  std::vector<Block> blocks(4);
  PrefixCache cache(&blocks);
  blocks[1].hash = HashOf(1);
  cache.Insert(BlockId(1));
  EXPECT_TRUE(cache.CheckIntegrity().ok());
  blocks[2].hash = HashOf(2);
  EXPECT_FALSE(cache.CheckIntegrity().ok());
  blocks[2].hash = BlockHash();
  blocks[1].hash = BlockHash();
  EXPECT_FALSE(cache.CheckIntegrity().ok());
}

}  // namespace
}  // namespace pagemill::kv_cache
