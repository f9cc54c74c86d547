#include "cc/kv_cache/kinds/kinds.h"

#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

using step::StateCheckpoints;

constexpr GroupId kGroup{0};
constexpr int32_t kGrain = 4;

BlockHash HashAt(int32_t index) { return BlockHash{{static_cast<uint64_t>(index) + 1, 0, 0, 0}}; }

std::unique_ptr<CacheKind> Make(const KvGroupOptions& options) {
  StatusOr<std::unique_ptr<CacheKind>> made = MakeCacheKind(options, kGrain);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *std::move(made);
}

// The longest usable prefix of 8 blocks of which `cached` are there.
int32_t Longest(const CacheKind& kind, const std::set<int32_t>& cached, int32_t max_blocks = 8) {
  class Cached final : public ContentFinder {
   public:
    explicit Cached(const std::set<int32_t>& indices) : indices_(indices) {}
    bool Has(const BlockHash& hash, GroupId group) const override {
      return group == kGroup && indices_.contains(static_cast<int32_t>(hash.words[0]) - 1);
    }

   private:
    const std::set<int32_t>& indices_;
  };
  std::vector<BlockHash> hashes;
  for (int32_t i = 0; i < 8; ++i) hashes.push_back(HashAt(i));
  return kind.LongestPrefix(GroupContent(hashes, 1, kGroup, Cached(cached)), max_blocks);
}

// The positions of the table that a step over `range` needs.
std::vector<int32_t> Needed(const CacheKind& kind, TokenRange range,
                            const RequestShape& shape = {}) {
  std::vector<int32_t> needed;
  for (int32_t i = 0; i < kind.NumBlocks(range.end, shape); ++i) {
    if (kind.Needs(i, range, shape)) needed.push_back(i);
  }
  return needed;
}

using Positions = std::vector<int32_t>;

TEST(FullAttention, KeepsEverythingAndGoesOnWhereItBreaksOff) {
  for (const char* name : {"full", "mla"}) {
    const auto kind = Make({.kind = name});
    EXPECT_EQ(kind->NumBlocks(0, {}), 0);
    EXPECT_EQ(kind->NumBlocks(9, {}), 3);
    EXPECT_EQ(Needed(*kind, {8, 9}), (Positions{0, 1, 2}));
    EXPECT_EQ(Longest(*kind, {0, 1, 2, 4}), 3);
    EXPECT_EQ(Longest(*kind, {0, 1, 2, 4}, 2), 2);
    EXPECT_EQ(Longest(*kind, {1}), 0);
    EXPECT_EQ(kind->MaxHeld(100, {}, {.step_tokens = 8}), 25);
  }
}

TEST(SlidingWindow, NeedsTheWindowBeforeTheStep) {
  const auto kind = Make({.kind = "sliding_window", .window_tokens = 6});
  EXPECT_EQ(kind->NumBlocks(17, {}), 5);
  EXPECT_EQ(Needed(*kind, {0, 17}), (Positions{0, 1, 2, 3, 4}));
  // Token 16 reads 11 to 16; token 13 reads 8 to 13; token 12 reads 7 to 12.
  EXPECT_EQ(Needed(*kind, {16, 17}), (Positions{2, 3, 4}));
  EXPECT_EQ(Needed(*kind, {13, 14}), (Positions{2, 3}));
  EXPECT_EQ(Needed(*kind, {12, 13}), (Positions{1, 2, 3}));
}

TEST(SlidingWindow, APrefixNeedsItsWindowOnly) {
  const auto kind = Make({.kind = "sliding_window", .window_tokens = 6});
  // After 20 tokens (5 blocks), token 20 reads from 15 on: blocks 3 and 4.
  EXPECT_EQ(Longest(*kind, {3, 4}), 5);
  EXPECT_EQ(Longest(*kind, {3, 4, 6, 7}), 8);
  EXPECT_EQ(Longest(*kind, {3, 4, 6, 7}, 7), 5);
  EXPECT_EQ(Longest(*kind, {4, 6}), 0);
  EXPECT_EQ(Longest(*kind, {0}), 1);  // token 4 reads nothing before 0
  EXPECT_EQ(Longest(*kind, {}), 0);
  const auto itself = Make({.kind = "sliding_window", .window_tokens = 1});
  EXPECT_EQ(Longest(*itself, {}), 8);
}

TEST(SlidingWindow, HoldsAWindowAndTheTokensInFlight) {
  const auto kind = Make({.kind = "sliding_window", .window_tokens = 6});
  // 5 tokens before the first step, 2 steps of 8, a block of 4 that is full only later: 25 tokens
  // touch at most 8 blocks.
  EXPECT_EQ(kind->MaxHeld(100000, {}, {.step_tokens = 8, .steps = 2}), 8);
  EXPECT_EQ(kind->MaxHeld(12, {}, {.step_tokens = 8, .steps = 2}), 3);
  EXPECT_EQ(kind->MaxHeld(400, {}, {}), 100);
}

TEST(ChunkedLocal, NeedsTheChunkOfTheStep) {
  const auto kind = Make({.kind = "chunked_local", .window_tokens = 12});
  EXPECT_EQ(Needed(*kind, {11, 12}), (Positions{0, 1, 2}));
  EXPECT_EQ(Needed(*kind, {12, 13}), (Positions{3}));
  EXPECT_EQ(Needed(*kind, {23, 30}), (Positions{3, 4, 5, 6, 7}));
  EXPECT_EQ(Longest(*kind, {}), 6);  // token 24 starts a chunk
  EXPECT_EQ(Longest(*kind, {6}), 7);
  EXPECT_EQ(Longest(*kind, {6, 7}), 8);
  EXPECT_EQ(Longest(*kind, {7}, 5), 3);
}

TEST(StateSpace, EveryBoundaryKeepsAStatePerBlock) {
  const auto kind = Make({.kind = "state_space", .checkpoints = StateCheckpoints::kEveryBoundary});
  EXPECT_EQ(Needed(*kind, {0, 10}), (Positions{0, 1, 2}));
  // Token 9 continues from the state after 9 tokens, which is at position 2.
  EXPECT_EQ(Needed(*kind, {9, 10}), (Positions{2}));
  EXPECT_EQ(Needed(*kind, {8, 9}), (Positions{1, 2}));
  EXPECT_EQ(Longest(*kind, {2, 5}), 6);
  EXPECT_EQ(Longest(*kind, {2, 5}, 5), 3);
  EXPECT_EQ(kind->WorthAfterNext(5, {.prompt_tokens = 8}), CacheKind::Worth::kAll);
  EXPECT_FALSE(kind->traits().checkpoints);
}

TEST(StateSpace, LastBoundaryKeepsTheLastOneOfAStep) {
  const auto kind = Make({.kind = "state_space", .checkpoints = StateCheckpoints::kLastBoundary});
  EXPECT_EQ(Needed(*kind, {0, 18}), (Positions{3, 4}));
  EXPECT_EQ(Needed(*kind, {0, 16}), (Positions{3}));
  EXPECT_EQ(Needed(*kind, {5, 18}), (Positions{1, 3, 4}));
  EXPECT_EQ(Needed(*kind, {16, 17}), (Positions{3, 4}));
  EXPECT_EQ(Needed(*kind, {17, 18}), (Positions{4}));
  // The boundary from which the same prompt can continue, and the branch.
  EXPECT_EQ(Needed(*kind, {0, 18}, {.prompt_tokens = 16}), (Positions{2, 3, 4}));
  EXPECT_EQ(Needed(*kind, {0, 18}, {.prompt_tokens = 18, .branch_tokens = 8}),
            (Positions{1, 3, 4}));
  EXPECT_EQ(Longest(*kind, {2, 5}), 6);
  EXPECT_TRUE(kind->traits().checkpoints);
  EXPECT_EQ(kind->MaxHeld(100000, {}, {.step_tokens = 8, .steps = 2}), 8);
}

TEST(StateSpace, GeneratedCheckpointsDoNotOutliveTheNext) {
  const auto kind = Make({.kind = "state_space"});
  const RequestShape shape{.prompt_tokens = 16, .branch_tokens = 24};
  const auto worth = [&](int32_t index) { return kind->WorthAfterNext(index, shape); };
  EXPECT_EQ(worth(1), CacheKind::Worth::kLittle);   // a chunk of the prompt
  EXPECT_EQ(worth(2), CacheKind::Worth::kAll);      // the prompt's last reusable one
  EXPECT_EQ(worth(3), CacheKind::Worth::kNothing);  // the end of the prompt
  EXPECT_EQ(worth(4), CacheKind::Worth::kNothing);
  EXPECT_EQ(worth(5), CacheKind::Worth::kAll);  // the branch
}

TEST(StateSpace, WithoutCheckpointsOnePageIsAll) {
  const auto kind = Make({.kind = "state_space", .checkpoints = StateCheckpoints::kNone});
  EXPECT_EQ(kind->NumBlocks(0, {}), 0);
  EXPECT_EQ(kind->NumBlocks(1000, {}), 1);
  EXPECT_EQ(Needed(*kind, {999, 1000}), (Positions{0}));
  EXPECT_EQ(Longest(*kind, {0, 1, 2}), 0);
  EXPECT_FALSE(kind->traits().cacheable);
}

TEST(StateSpace, RecentStatesLetTokensBeRejected) {
  const auto kind = Make({.kind = "state_space", .recent_states = 5});
  EXPECT_EQ(kind->traits().num_leading, 5);
  EXPECT_EQ(kind->traits().max_rejected_tokens, 4);
  EXPECT_EQ(Needed(*kind, {17, 18}), (Positions{4}));
  EXPECT_EQ(kind->MaxHeld(9, {}, {.step_tokens = 8, .steps = 2}), 5 + 3);
  // Two steps of five tokens may reach over three boundaries that are not reached then.
  EXPECT_EQ(kind->MaxHeld(100000, {}, {.step_tokens = 8, .steps = 2}), 5 + 8 + 3);
  const auto none = Make({.kind = "state_space",
                          .checkpoints = StateCheckpoints::kNone,
                          .recent_states = 3});
  EXPECT_EQ(none->NumBlocks(1000, {}), 0);
  EXPECT_EQ(none->MaxHeld(1000, {}, {}), 3);
  EXPECT_EQ(Make({.kind = "state_space"})->traits().max_rejected_tokens, 0);
  EXPECT_FALSE(MakeCacheKind({.kind = "state_space", .recent_states = -1}, kGrain).ok());
  EXPECT_FALSE(MakeCacheKind({.kind = "full", .recent_states = 1}, kGrain).ok());
}

TEST(CrossAttention, TakesBlocksForMediaTokens) {
  const auto kind = Make({.kind = "cross"});
  const RequestShape shape{.media_tokens = 9};
  EXPECT_EQ(kind->NumBlocks(0, shape), 0);
  EXPECT_EQ(kind->NumBlocks(1, shape), 3);
  EXPECT_EQ(kind->NumBlocks(1000, shape), 3);
  EXPECT_EQ(kind->NumBlocks(1000, {}), 0);
  EXPECT_EQ(Longest(*kind, {0, 1}), 0);
  EXPECT_FALSE(kind->traits().cacheable);
}

TEST(EncoderOnly, TakesNothing) {
  const auto kind = Make({.kind = "encoder_only"});
  EXPECT_EQ(kind->NumBlocks(1000, {.media_tokens = 9}), 0);
  EXPECT_EQ(Longest(*kind, {0, 1}), 0);
}

TEST(Kinds, RefusalsNameTheField) {
  const auto message = [](const KvGroupOptions& options) {
    const Status status = MakeCacheKind(options, kGrain).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_NE(message({.kind = "fuller"}).find("sliding_window"), std::string::npos);
  EXPECT_NE(message({.block_size = 6}).find("block_size is 6"), std::string::npos);
  EXPECT_NE(message({.block_size = -4}).find("block_size is -4"), std::string::npos);
  EXPECT_NE(message({.pages_per_block = 0}).find("pages_per_block is 0"), std::string::npos);
  EXPECT_NE(message({.kind = "sliding_window"}).find("window_tokens is 0"), std::string::npos);
  EXPECT_NE(message({.window_tokens = 8}).find("window_tokens is 8"), std::string::npos);
}

}  // namespace
}  // namespace pagemill::kv_cache
