// What a pool hits that adapts its eviction to the traffic, compared with the fixed policies.
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/kv_cache/block_pool.h"
#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

constexpr GroupId kGroup{0};

BlockHash HashOf(uint64_t content) {
  // Mixes the bits as real hashes do (the finalizer of splitmix64); 0 would be no hash.
  ++content;
  content = (content ^ (content >> 30)) * 0xBF58476D1CE4E5B9u;
  content = (content ^ (content >> 27)) * 0x94D049BB133111EBu;
  return BlockHash{{content ^ (content >> 31), content, 0, 0}};
}

// Requests of one block each.
class Traffic {
 public:
  Traffic(int32_t num_pages, const std::string& eviction, int pages_per_block = 1)
      : pool_(num_pages + 1, eviction), pages_per_block_(pages_per_block) {}

  void Use(uint64_t content) {
    std::vector<BlockId> pages;
    if (std::optional<BlockId> page = pool_.Find(HashOf(content), kGroup)) {
      ++num_hits_;
      for (int i = 0; i < pages_per_block_; ++i, page = pool_.NextPage(*page)) {
        pool_.Reuse(*page);
        pages.push_back(*page);
      }
    } else {
      for (int i = 0; i < pages_per_block_; ++i) pages.push_back(pool_.Allocate());
      pool_.Cache(pages, HashOf(content), kGroup);
    }
    for (size_t i = pages.size(); i-- > 0;) pool_.Release(pages[i]);
  }

  // One of `num_popular` contents, one that occurs once, and so on.
  void UsePopular(int num_uses, uint64_t num_popular) {
    for (int i = 0; i < num_uses; ++i, ++next_) {
      Use(i % 2 == 0 ? random_() % num_popular : (uint64_t{1} << 40) + next_);
    }
  }
  // Each content twice, `distance` (odd) uses apart; all in between are of other contents.
  void UseTwice(int num_uses, uint64_t distance) {
    for (int i = 0; i < num_uses; ++i, ++next_) {
      Use((uint64_t{1} << 41) + (next_ % 2 == 0 ? next_ : next_ - distance));
    }
  }

  // Hits since the last call.
  int TakeHits() {
    EXPECT_TRUE(pool_.CheckIntegrity().ok());
    return std::exchange(num_hits_, 0);
  }

 private:
  BlockPool pool_;
  const int pages_per_block_;
  std::mt19937 random_{3};
  uint64_t next_ = 1 << 20;
  int num_hits_ = 0;
};

// Hits of 60,000 uses.
int PopularHits(const char* eviction, int32_t num_blocks, int pages_per_block = 1) {
  Traffic traffic(num_blocks * pages_per_block, eviction, pages_per_block);
  traffic.UsePopular(60000, static_cast<uint64_t>(num_blocks) * 7 / 10);
  return traffic.TakeHits();
}

TEST(AdaptiveEviction, ProtectsWhatIsPopularFromWhatOccursOnce) {
  // Half of the uses could hit.
  for (int32_t num_blocks : {200, 3000}) {
    EXPECT_LT(PopularHits("lru", num_blocks), 18000);
    EXPECT_GT(PopularHits("adaptive", num_blocks), 23000) << num_blocks;
  }
}

TEST(AdaptiveEviction, ModelsCountBlocksHoweverManyPagesTheyHave) {
  EXPECT_LT(PopularHits("lru", 400, 3), 18000);
  EXPECT_GT(PopularHits("adaptive", 400, 3), 29000);
}

int TwiceHits(const char* eviction) {
  Traffic traffic(1000, eviction);
  traffic.UseTwice(60000, 701);
  return traffic.TakeHits();
}

TEST(AdaptiveEviction, IsLruIfContentIsUsedTwice) {
  EXPECT_GT(TwiceHits("lru"), 29000);
  EXPECT_LT(TwiceHits("reuse"), 1000);
  EXPECT_EQ(TwiceHits("adaptive"), TwiceHits("lru"));
}

TEST(AdaptiveEviction, FollowsTheTraffic) {
  Traffic traffic(1000, "adaptive");
  for (int round = 0; round < 2; ++round) {
    traffic.UsePopular(60000, 600);
    traffic.TakeHits();
    traffic.UsePopular(10000, 600);
    EXPECT_GT(traffic.TakeHits(), 4500) << round;  // of 5,000
    traffic.UseTwice(60000, 701);
    traffic.TakeHits();
    traffic.UseTwice(10000, 701);
    EXPECT_GT(traffic.TakeHits(), 4900) << round;
  }
}

TEST(AdaptiveEviction, EqualTrafficHasEqualHits) {
  const auto hits = [] {
    Traffic traffic(5000, "adaptive");
    traffic.UsePopular(50000, 4000);
    traffic.UseTwice(50000, 701);
    return traffic.TakeHits();
  };
  EXPECT_GT(hits(), 30000);
  EXPECT_EQ(hits(), hits());
}

}  // namespace
}  // namespace pagemill::kv_cache
