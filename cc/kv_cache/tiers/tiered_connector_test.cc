#include "cc/kv_cache/tiers/tiered_connector.h"

#include <map>
#include <random>
#include <set>
#include <vector>

#include "cc/kv_cache/testing/made_query.h"
#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

using Direction = KvTransfer::Direction;

BlockHash Hash(int i) {
  BlockHash hash;
  hash.words[0] = static_cast<uint64_t>(i) + 1;
  return hash;
}

std::vector<BlockHash> Hashes(int begin, int end) {
  std::vector<BlockHash> hashes;
  for (int i = begin; i < end; ++i) hashes.push_back(Hash(i));
  return hashes;
}

class Tiers {
 public:
  explicit Tiers(const TieredConnector::Options& options)
      : connector_(*TieredConnector::Create(options)) {}

  std::vector<KvTransfer> Store(int begin, int end) {
    std::vector<BlockContent> blocks;
    for (int i = begin; i < end; ++i) blocks.push_back({Hash(i), GroupId(0), BlockId(i + 1)});
    return Transfer(Direction::kStore, blocks);
  }
  std::vector<KvTransfer> Load(int begin, int end) {
    std::vector<BlockContent> blocks;
    for (int i = begin; i < end; ++i) blocks.push_back({Hash(i), GroupId(0), BlockId(i + 1)});
    return Transfer(Direction::kLoad, blocks);
  }
  void Finish(const std::vector<KvTransfer>& transfers) {
    for (const KvTransfer& t : transfers) {
      connector_->Finish(t, {t.id, static_cast<int32_t>(t.blocks.size()), OkStatus()});
      EXPECT_EQ(connector_->CheckIntegrity(), OkStatus());
    }
  }
  void Fail(const KvTransfer& t, int32_t done) {
    connector_->Finish(t, {t.id, done, Internal("injected")});
    EXPECT_EQ(connector_->CheckIntegrity(), OkStatus());
  }
  ConnectorMatch Lookup(int begin, int end) {
    std::vector<KvTransfer> none;
    const MadeQuery made(Hashes(begin, end));
    const ConnectorMatch match = connector_->Lookup(step::Request(), made.query(), &none);
    EXPECT_TRUE(none.empty());
    return match;
  }
  void Reset() {
    std::vector<KvTransfer> none;
    EXPECT_TRUE(connector_->Reset(&none));
    EXPECT_TRUE(none.empty());
    EXPECT_EQ(connector_->CheckIntegrity(), OkStatus());
  }
  KvConnectorStats stats() const { return connector_->stats(); }

 private:
  std::vector<KvTransfer> Transfer(Direction direction, const std::vector<BlockContent>& blocks) {
    std::vector<KvTransfer> transfers;
    connector_->Transfer(direction, blocks, &transfers);
    EXPECT_EQ(connector_->CheckIntegrity(), OkStatus());
    return transfers;
  }
  std::unique_ptr<TieredConnector> connector_;
};

TEST(TieredConnector, StoredBlocksAreFoundInARow) {
  Tiers tiers({.host_blocks = 8});
  tiers.Finish(tiers.Store(0, 3));
  EXPECT_EQ(tiers.Lookup(0, 5).num_blocks, 3);
  EXPECT_EQ(tiers.Lookup(1, 5).num_blocks, 2);
  EXPECT_EQ(tiers.Lookup(3, 5).num_blocks, 0);
}

TEST(TieredConnector, BlocksOnTheirWayAreAskedForAgain) {
  Tiers tiers({.host_blocks = 8});
  const auto store = tiers.Store(0, 2);
  EXPECT_TRUE(tiers.Lookup(0, 2).ask_again);
  tiers.Finish(store);
  const auto load = tiers.Load(0, 2);
  EXPECT_TRUE(tiers.Lookup(1, 2).ask_again);
  tiers.Finish(load);
  EXPECT_EQ(tiers.Lookup(0, 2).num_blocks, 2);
  EXPECT_EQ(tiers.stats().num_deferred_kv_lookups, 2u);
  EXPECT_EQ(tiers.stats().kv_blocks_loaded, 2u);
}

TEST(TieredConnector, StoresAreDroppedWhileTooManyBlocksAreInFlight) {
  Tiers tiers({.host_blocks = 32, .max_blocks_in_flight = 3});
  const auto store = tiers.Store(0, 5);
  ASSERT_EQ(store.size(), 1u);
  EXPECT_EQ(store[0].blocks.size(), 3u);
  EXPECT_EQ(tiers.stats().kv_blocks_dropped, 2u);
  tiers.Finish(store);
  EXPECT_EQ(tiers.Store(0, 5)[0].blocks.size(), 2u) << "what is there is not stored again";
}

TEST(TieredConnector, TheHostTierDemotesToDiskAndDiskIsPromoted) {
  Tiers tiers({.host_blocks = 4, .disk_blocks = 8});  // one spare slot in the host tier
  tiers.Finish(tiers.Store(0, 3));
  const auto transfers = tiers.Store(3, 4);
  ASSERT_EQ(transfers.size(), 2u);
  EXPECT_EQ(transfers[0].direction, Direction::kDemote);
  EXPECT_EQ(transfers[0].medium, "disk");
  EXPECT_EQ(transfers[0].blocks[0].hash, Hash(0));
  EXPECT_EQ(transfers[0].blocks[0].block, kNullBlock);
  EXPECT_NE(transfers[0].source_slots[0], transfers[1].medium_slots[0]);
  EXPECT_TRUE(tiers.Lookup(0, 1).ask_again) << "it is between the tiers";
  EXPECT_TRUE(tiers.Store(4, 5).empty()) << "the slot is not free before the demotion ends";
  EXPECT_EQ(tiers.stats().kv_blocks_dropped, 1u);
  tiers.Finish(transfers);
  EXPECT_EQ(tiers.Lookup(0, 4).num_blocks, 4);

  const auto load = tiers.Load(0, 4);
  ASSERT_EQ(load.size(), 2u);
  EXPECT_EQ(load[0].medium, "host");
  EXPECT_EQ(load[0].blocks.size(), 3u);
  EXPECT_EQ(load[1].medium, "disk");
  EXPECT_EQ(load[1].blocks.size(), 1u);
  tiers.Finish(load);
  // The scheduler offers what was loaded: the block from disk comes to the host tier.
  const auto promotion = tiers.Store(0, 4);
  ASSERT_EQ(promotion.size(), 2u);
  EXPECT_EQ(promotion[1].medium, "host");
  EXPECT_EQ(promotion[1].blocks[0].hash, Hash(0));
  tiers.Finish(promotion);
  EXPECT_EQ(tiers.stats().kv_blocks_demoted, 2u);
}

TEST(TieredConnector, AFailedLoadForgetsTheFirstBadBlock) {
  Tiers tiers({.host_blocks = 8});
  tiers.Finish(tiers.Store(0, 4));
  tiers.Fail(tiers.Load(0, 4)[0], 2);
  EXPECT_EQ(tiers.Lookup(0, 4).num_blocks, 2);
  EXPECT_EQ(tiers.Lookup(3, 4).num_blocks, 1);
  EXPECT_EQ(tiers.stats().num_failed_kv_transfers, 1u);
}

TEST(TieredConnector, AFailedStoreKeepsWhatCame) {
  Tiers tiers({.host_blocks = 8});
  tiers.Fail(tiers.Store(0, 4)[0], 1);
  EXPECT_EQ(tiers.Lookup(0, 4).num_blocks, 1);
}

TEST(TieredConnector, AFailedDemotionLosesTheBlockAndFreesItsSlot) {
  Tiers tiers({.host_blocks = 4, .disk_blocks = 8});
  tiers.Finish(tiers.Store(0, 3));
  const auto transfers = tiers.Store(3, 4);
  tiers.Fail(transfers[0], 0);
  tiers.Finish({transfers[1]});
  EXPECT_EQ(tiers.Lookup(0, 1).num_blocks, 0);
  EXPECT_EQ(tiers.Lookup(1, 4).num_blocks, 3);
  EXPECT_FALSE(tiers.Store(4, 5).empty());
}

TEST(TieredConnector, AResetForgetsWhatIsThereAndWhatIsUnderWay) {
  for (const char* policy : {"lru", "arc"}) {
    Tiers tiers({.host_blocks = 4, .disk_blocks = 8, .policy = policy});
    tiers.Finish(tiers.Store(0, 3));
    tiers.Finish(tiers.Store(3, 4));  // block 0 is on disk now
    const auto under_way = tiers.Store(4, 5);
    ASSERT_EQ(under_way.size(), 2u) << "a demotion and a store";
    tiers.Reset();
    EXPECT_EQ(tiers.Lookup(0, 5).num_blocks, 0);
    EXPECT_EQ(tiers.Lookup(4, 5).num_blocks, 0);
    tiers.Finish(under_way);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(tiers.Lookup(i, i + 1).num_blocks, 0) << i;
    tiers.Finish(tiers.Store(0, 3));
    EXPECT_EQ(tiers.Lookup(0, 5).num_blocks, 3) << "all slots are free again";
  }
}

TEST(TieredConnector, AStoreThatFailsAfterAResetFreesItsSlot) {
  Tiers tiers({.host_blocks = 3});
  const auto store = tiers.Store(0, 2);
  tiers.Reset();
  tiers.Fail(store[0], 1);
  tiers.Finish(tiers.Store(0, 2));
  EXPECT_EQ(tiers.Lookup(0, 2).num_blocks, 2);
}

TEST(TieredConnector, ABlockIsLoadableWhereAllGroupsHaveIt) {
  auto connector = *TieredConnector::Create({.host_blocks = 8});
  std::vector<KvTransfer> transfers;
  const BlockContent first[] = {{Hash(0), GroupId(0), BlockId(1)},
                                {Hash(0), GroupId(1), BlockId(2)},
                                {Hash(1), GroupId(0), BlockId(3)}};
  connector->Transfer(Direction::kStore, first, &transfers);
  connector->Finish(transfers[0], {transfers[0].id, 3, OkStatus()});
  const MadeQuery made(Hashes(0, 2), {{.kind = "full"}, {.kind = "full"}});
  EXPECT_EQ(connector->Lookup(step::Request(), made.query(), &transfers).num_blocks, 1);
}

// A window of one block needs only the last block, and waits only for that.
TEST(TieredConnector, AWindowNeedsTheLastBlocks) {
  auto connector = *TieredConnector::Create({.host_blocks = 16});
  std::vector<KvTransfer> stores;
  std::vector<BlockContent> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back({Hash(i), GroupId(0), BlockId(i + 1)});
  blocks.push_back({Hash(2), GroupId(1), BlockId(7)});
  connector->Transfer(Direction::kStore, blocks, &stores);
  connector->Finish(stores[0], {stores[0].id, 5, OkStatus()});
  const BlockContent early[] = {{Hash(0), GroupId(1), BlockId(8)}};
  connector->Transfer(Direction::kStore, early, &stores);
  const MadeQuery made(Hashes(0, 4),
                       {{.kind = "full"}, {.kind = "sliding_window", .window_tokens = 4}});
  std::vector<KvTransfer> none;
  const ConnectorMatch match = connector->Lookup(step::Request(), made.query(), &none);
  EXPECT_FALSE(match.ask_again);
  EXPECT_EQ(match.num_blocks, 3);
  const BlockContent last[] = {{Hash(3), GroupId(1), BlockId(9)}};
  connector->Transfer(Direction::kStore, last, &stores);
  EXPECT_TRUE(connector->Lookup(step::Request(), made.query(), &none).ask_again);
}

TEST(TieredConnector, NoTierIsRefused) {
  EXPECT_EQ(TieredConnector::Create({}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(TieredConnector::Create({.host_blocks = 1}).status().code(),
            StatusCode::kInvalidArgument);
}

// Carries out transfers on pretended media, in any order and with failures: whatever is loaded must
// be what was stored.
void Drive(const TieredConnector::Options& options, uint32_t seed) {
  auto connector = *TieredConnector::Create(options);
  std::mt19937 random(seed);
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::map<std::pair<std::string, int64_t>, BlockHash> media;
  std::vector<KvTransfer> in_flight;
  uint64_t num_loaded = 0;
  const auto finish = [&](KvTransfer t) {
    const bool fails = pick(8) == 0;
    const auto done = static_cast<int32_t>(fails ? pick(t.blocks.size()) : t.blocks.size());
    for (int32_t i = 0; i < done; ++i) {
      const auto slot = std::pair(t.medium, t.medium_slots[i]);
      if (t.direction == Direction::kLoad) {
        ASSERT_EQ(media.at(slot), t.blocks[i].hash);
        ++num_loaded;
      } else if (t.direction == Direction::kDemote) {
        media[slot] = media.at({kHostMedium, t.source_slots[i]});
        ASSERT_EQ(media[slot], t.blocks[i].hash);
      } else {
        media[slot] = t.blocks[i].hash;
      }
    }
    connector->Finish(t, {t.id, done, fails ? Internal("injected") : OkStatus()});
  };
  for (int i = 0; i < 8000; ++i) {
    const int begin = static_cast<int>(pick(4)) * 12;
    const int end = begin + 1 + static_cast<int>(pick(12));
    std::vector<KvTransfer> transfers;
    std::vector<BlockContent> blocks;
    if (pick(3) == 0) {
      for (int b = begin; b < end; ++b) blocks.push_back({Hash(b), GroupId(0), BlockId(b + 1)});
      connector->Transfer(Direction::kStore, blocks, &transfers);
    } else if (pick(2) == 0) {
      const MadeQuery made(Hashes(begin, end));
      const auto match = connector->Lookup(step::Request(), made.query(), &transfers);
      ASSERT_FALSE(match.ask_again && in_flight.empty());
      for (int b = begin; b < begin + match.num_blocks; ++b) {
        blocks.push_back({Hash(b), GroupId(0), BlockId(b + 1)});
      }
      connector->Transfer(Direction::kLoad, blocks, &transfers);
      size_t covered = 0;
      for (const KvTransfer& t : transfers) covered += t.blocks.size();
      ASSERT_EQ(covered, blocks.size());
    }
    in_flight.insert(in_flight.end(), transfers.begin(), transfers.end());
    while (!in_flight.empty() && pick(3) != 0) {
      const size_t which = pick(in_flight.size());
      const KvTransfer t = in_flight[which];
      in_flight.erase(in_flight.begin() + static_cast<ptrdiff_t>(which));
      finish(t);
      if (testing::Test::HasFatalFailure()) return;
    }
    ASSERT_EQ(connector->CheckIntegrity(), OkStatus()) << i;
  }
  EXPECT_GT(num_loaded, 1000u);
  EXPECT_GT(connector->stats().kv_blocks_evicted, 100u);
  EXPECT_EQ(connector->stats().kv_blocks_demoted > 0,
            options.disk_blocks * options.host_blocks > 0);
}

TEST(TieredConnector, RandomTransfersInAnyOrderGiveWhatWasStored) {
  for (const char* policy : {"lru", "arc"}) {
    Drive({.host_blocks = 12, .policy = policy}, 1);
    Drive({.disk_blocks = 12, .policy = policy, .max_blocks_in_flight = 4}, 2);
    Drive({.host_blocks = 9, .disk_blocks = 20, .policy = policy}, 3);
  }
}

}  // namespace
}  // namespace pagemill::kv_cache
