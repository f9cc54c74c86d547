#include "cc/kv_cache/tiers/block_tier.h"

#include <map>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

using State = BlockTier::State;

ContentKey Key(int i) {
  ContentKey key;
  key.hash.words[1] = static_cast<uint64_t>(i) + 1;
  return key;
}

BlockTier Tier(int64_t num_slots, int64_t num_spare, const char* policy = "lru") {
  return *BlockTier::Create(policy, num_slots, num_spare);
}

void Store(BlockTier* tier, int i) {
  const auto reservation = tier->Reserve(Key(i));
  ASSERT_TRUE(reservation);
  if (reservation->victim) tier->FreeSlot(reservation->victim->slot);
  tier->Commit(Key(i));
}

TEST(BlockTier, ContentIsReadyOnceItsStoreIsCommitted) {
  BlockTier tier = Tier(4, 1);
  EXPECT_EQ(tier.state(Key(1)), State::kAbsent);
  const auto reservation = tier.Reserve(Key(1));
  ASSERT_TRUE(reservation);
  EXPECT_EQ(tier.state(Key(1)), State::kStoring);
  tier.Commit(Key(1));
  EXPECT_EQ(tier.state(Key(1)), State::kReady);
  EXPECT_EQ(tier.Pin(Key(1)), reservation->slot);
}

TEST(BlockTier, AVictimKeepsItsSlotUntilItIsFreed) {
  BlockTier tier = Tier(3, 1);
  Store(&tier, 1);
  Store(&tier, 2);
  const auto third = tier.Reserve(Key(3));
  ASSERT_TRUE(third && third->victim);
  EXPECT_EQ(third->victim->key, Key(1));
  EXPECT_EQ(tier.state(Key(1)), State::kAbsent);
  EXPECT_FALSE(tier.Reserve(Key(4))) << "no slot is free";
  tier.FreeSlot(third->victim->slot);
  EXPECT_TRUE(tier.Reserve(Key(4)));
}

TEST(BlockTier, PinnedAndUnfinishedContentIsNotEvicted) {
  BlockTier tier = Tier(3, 1);
  Store(&tier, 1);
  tier.Pin(Key(1));
  ASSERT_TRUE(tier.Reserve(Key(2)));  // being stored
  EXPECT_FALSE(tier.Reserve(Key(3)));
  tier.Unpin(Key(1));
  EXPECT_TRUE(tier.Reserve(Key(3)));
  EXPECT_EQ(tier.state(Key(1)), State::kAbsent);
}

TEST(BlockTier, ErasedContentKeepsItsSlotWhileItIsRead) {
  BlockTier tier = Tier(2, 1);
  Store(&tier, 1);
  tier.Pin(Key(1));
  tier.Erase(Key(1));
  EXPECT_EQ(tier.state(Key(1)), State::kAbsent);
  EXPECT_EQ(tier.num_free_slots(), 1);
  EXPECT_FALSE(tier.Reserve(Key(1))) << "its old bytes are still in use";
  tier.Unpin(Key(1));
  EXPECT_EQ(tier.num_free_slots(), 2);
  EXPECT_TRUE(tier.Reserve(Key(1)));
}

TEST(BlockTier, TooFewSlotsAreRefused) {
  EXPECT_EQ(BlockTier::Create("lru", 1, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(BlockTier::Create("lru", 4, 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(BlockTier::Create("mru", 4, 1).status().code(), StatusCode::kInvalidArgument);
}

// The bytes of each slot are simulated: whatever is pinned must still have what was stored there.
void Drive(const char* policy, uint32_t seed) {
  BlockTier tier = Tier(9, 2, policy);
  std::mt19937 random(seed);
  std::map<int64_t, int> bytes;
  std::map<int, int64_t> storing;
  std::multiset<int> pinned;
  std::vector<int64_t> victims;
  const auto pick = [&](uint32_t n) { return static_cast<int>(random() % n); };
  for (int i = 0; i < 20000; ++i) {
    const int x = pick(24);
    const int dice = pick(10);
    const State state = tier.state(Key(x));
    if (dice < 4 && state == State::kAbsent) {
      const auto reservation = tier.Reserve(Key(x));
      if (reservation) {
        ASSERT_FALSE(bytes.contains(reservation->slot)) << "the slot is in use";
        bytes[reservation->slot] = x;
        storing[x] = reservation->slot;
        if (reservation->victim) victims.push_back(reservation->victim->slot);
      }
    } else if (dice == 4 && !victims.empty()) {
      tier.FreeSlot(victims.back());
      bytes.erase(victims.back());
      victims.pop_back();
    } else if (dice == 5 && state == State::kStoring) {
      if (pick(4) == 0) {
        tier.Erase(Key(x));
        bytes.erase(storing[x]);
      } else {
        tier.Commit(Key(x));
      }
      storing.erase(x);
    } else if (dice < 8 && state == State::kReady) {
      const int64_t slot = tier.Pin(Key(x));
      ASSERT_EQ(bytes.at(slot), x);
      pinned.insert(x);
    } else if (!pinned.empty()) {
      const int y = *pinned.begin();
      pinned.erase(pinned.begin());
      if (pick(9) == 0 && tier.state(Key(y)) == State::kReady) tier.Erase(Key(y));
      tier.Unpin(Key(y));
      // Who no longer has a name and is not read has no slot.
      if (!pinned.contains(y) && tier.state(Key(y)) == State::kAbsent) {
        for (auto it = bytes.begin(); it != bytes.end();) {
          it = it->second == y ? bytes.erase(it) : std::next(it);
        }
      }
    }
    ASSERT_EQ(tier.CheckIntegrity(), OkStatus()) << i;
    ASSERT_LE(tier.num_resident(), 9);
  }
}

TEST(BlockTier, RandomOperationsKeepPinnedContent) {
  Drive("lru", 1);
  Drive("arc", 2);
}

}  // namespace
}  // namespace pagemill::kv_cache
