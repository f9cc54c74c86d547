// Groups of layers with different needs, in one pool.
#include <vector>

#include "cc/kv_cache/kv_cache_manager.h"
#include "cc/kv_cache/testing/small_caches.h"
#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

TEST(KvCacheGroups, GroupsHaveTablesOfTheirOwn) {
  KvCacheManager cache(Options(9, {{"full"}, {"full"}}));
  const step::Request request = MakeRequest(9);
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> added;
  EXPECT_EQ(cache.NumBlocks(9), 6);
  ASSERT_TRUE(cache.Allocate(9, nullptr, &blocks, &added).ok());
  ASSERT_EQ(added.size(), 2u);
  EXPECT_EQ(added[0].size(), 3u);
  EXPECT_EQ(added[1].size(), 3u);
  cache.Commit(request, Tokens(request), 9, &blocks);
  EXPECT_EQ(cache.num_cached_blocks(), 4);
  cache.Free(&blocks);
  RequestBlocks again;
  const PrefixMatch match = cache.FindPrefix(request, Tokens(request), &again);
  EXPECT_EQ(match.num_tokens, 8);
  EXPECT_EQ(match.num_free_blocks, 4);
  // 6 of 8 blocks: 2 of the 4 cached ones go, the end of the prefix in both groups.
  std::vector<std::vector<BlockId>> taken;
  ASSERT_TRUE(cache.Allocate(12, nullptr, &blocks, &taken).ok());
  EXPECT_EQ(NumFound(request, &cache), 4);
  cache.Free(&blocks);
}

TEST(KvCacheGroups, AModelWithoutKvNeedsNoBlocks) {
  KvCacheManager cache(Options(1, {}));
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> added;
  const step::Request request = MakeRequest(9);
  EXPECT_EQ(NumFound(request, &cache), 0);
  EXPECT_TRUE(cache.CanAllocate(blocks, nullptr, 1000));
  ASSERT_TRUE(cache.Allocate(1000, nullptr, &blocks, &added).ok());
  EXPECT_TRUE(added.empty());
  cache.Commit(request, Tokens(request), 9, &blocks);
  cache.Free(&blocks);
  EXPECT_TRUE(cache.CheckIntegrity({}).ok());
}

TEST(KvCacheGroups, WindowsGiveBlocksBackAsTheRequestGoesOn) {
  KvCacheOptions options = Options(20, {{.kind = "sliding_window", .window_tokens = 8}});
  options.max_step_tokens = 4;
  options.max_steps_in_flight = 1;
  KvCacheManager cache(options);
  const step::Request request = MakeRequest(61);
  RequestBlocks blocks;
  for (int32_t end = 4; end <= 60; end += 4) {
    std::vector<std::vector<BlockId>> added;
    EXPECT_TRUE(cache.CanAllocate(blocks, nullptr, end));
    ASSERT_TRUE(cache.Allocate(end, nullptr, &blocks, &added).ok());
    cache.Commit(request, Tokens(request), end, &blocks);
    EXPECT_LE(cache.num_usable_blocks() - cache.num_free_blocks(), cache.NumBlocks(end));
  }
  EXPECT_EQ(cache.NumBlocks(1000000), 5);
  EXPECT_EQ(cache.num_usable_blocks() - cache.num_free_blocks(), 2);
  EXPECT_EQ(blocks.groups()[0][12], kNullBlock);
  EXPECT_NE(blocks.groups()[0][13], kNullBlock);
  EXPECT_EQ(NumFound(request, &cache), 60);
  cache.Free(&blocks);
}

TEST(KvCacheGroups, GroupsAgreeOnTheLengthOfAPrefix) {
  // Blocks of 4 and of 8 tokens: prefixes of 8, 16, ... are usable.
  KvCacheManager cache(Options(20, {{"full"}, {.kind = "full", .block_size = 8}}));
  EXPECT_EQ(cache.prefix_grain_tokens(), 8);
  EXPECT_EQ(cache.NumBlocks(21), 6 + 3);
  const step::Request request = MakeRequest(21);
  RunAndFree(request, 21, &cache);
  EXPECT_EQ(NumFound(request, &cache), 16);
  EXPECT_EQ(NumFound(MakeRequest(15), &cache), 8);
}

TEST(KvCacheGroups, BlocksOfSeveralPages) {
  KvCacheManager cache(Options(10, {{.kind = "mla", .pages_per_block = 3}}));
  const step::Request request = MakeRequest(9);
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> added;
  EXPECT_EQ(cache.NumBlocks(9), 9);
  EXPECT_FALSE(cache.CanAllocate(blocks, nullptr, 13));
  ASSERT_TRUE(cache.Allocate(9, nullptr, &blocks, &added).ok());
  EXPECT_EQ(added[0].size(), 9u);
  cache.Commit(request, Tokens(request), 9, &blocks);
  cache.Free(&blocks);
  EXPECT_EQ(cache.num_cached_blocks(), 2);
  const PrefixMatch match = cache.FindPrefix(request, Tokens(request), &blocks);
  EXPECT_EQ(match.num_tokens, 8);
  EXPECT_EQ(match.num_free_blocks, 6);
  EXPECT_EQ(match.groups[0], std::vector<BlockId>(added[0].begin(), added[0].begin() + 6));
}

TEST(KvCacheGroups, StatesOfEarlierTurnsGoFirst) {
  KvCacheManager cache(Options(22, {{"full"}, {"state_space"}}));
  const auto has_states = [&](const step::Request& request) {
    std::vector<int32_t> ends;
    for (int32_t end = 4; end < 40; end += 4) {
      step::Request prefix = request;
      prefix.prompt_token_ids = std::vector<int32_t>(request.prompt_token_ids.begin(),
                                                     request.prompt_token_ids.begin() + end + 1);
      if (NumFound(prefix, &cache) == end) ends.push_back(end);
    }
    return ends;
  };
  const step::Request turns[] = {MakeRequest(13), MakeRequest(21), MakeRequest(29)};
  for (const step::Request& turn : turns) {
    RequestBlocks blocks(turn);
    std::vector<std::vector<BlockId>> added;
    const PrefixMatch match = cache.FindPrefix(turn, Tokens(turn), &blocks);
    const int32_t size = static_cast<int32_t>(turn.prompt_token_ids.size());
    ASSERT_TRUE(cache.Allocate(size, &match, &blocks, &added).ok());
    cache.Commit(turn, Tokens(turn), size, &blocks);
    cache.Free(&blocks);
  }
  EXPECT_EQ(has_states(turns[2]), (std::vector<int32_t>{12, 20, 28}));
  // 10 blocks are cached; of those, the state that the first turn left is the first to go: the
  // third continued from the one after it. 9 blocks of tokens and a state, then one more of both.
  RequestBlocks other;
  std::vector<std::vector<BlockId>> added;
  ASSERT_TRUE(cache.AllocateForLoad(36, nullptr, &other).ok());
  EXPECT_EQ(has_states(turns[2]), (std::vector<int32_t>{12, 20, 28}));
  ASSERT_TRUE(cache.Allocate(40, nullptr, &other, &added).ok());
  EXPECT_EQ(has_states(turns[2]), (std::vector<int32_t>{20, 28}));
  cache.Free(&other);
}

TEST(KvCacheGroups, GoingBackForgetsLaterCheckpoints) {
  KvCacheManager cache(Options(30, {{"full"}, {.kind = "state_space", .block_size = 8}}));
  const step::Request request = MakeRequest(25);
  RequestBlocks blocks(request);
  std::vector<std::vector<BlockId>> added;
  const RequestBlocks* holders[] = {&blocks};
  ASSERT_TRUE(cache.Allocate(16, nullptr, &blocks, &added).ok());
  cache.Commit(request, Tokens(request), 16, &blocks);
  for (int32_t num_tokens : {16, 8, 0}) {
    EXPECT_EQ(cache.TruncateComputed(num_tokens, &blocks), num_tokens != 8);  // no state at 8
    EXPECT_TRUE(cache.CheckIntegrity(holders).ok()) << num_tokens;
  }
  ASSERT_TRUE(cache.Allocate(4, nullptr, &blocks, &added).ok());
  cache.Commit(request, Tokens(request), 4, &blocks);  // fewer tokens than a block of states has
  EXPECT_TRUE(cache.CheckIntegrity(holders).ok());
  cache.Free(&blocks);
  EXPECT_EQ(NumFound(request, &cache), 16);
}

TEST(KvCacheGroups, CrossAttentionIsNeverShared) {
  KvCacheManager cache(Options(20, {{"full"}, {"cross"}}));
  step::Request request = MakeRequest(9);
  request.media = {{"speech", 0, 6}};
  RequestBlocks blocks(request);
  std::vector<std::vector<BlockId>> added;
  ASSERT_TRUE(cache.Allocate(9, nullptr, &blocks, &added).ok());
  EXPECT_EQ(added[1].size(), 2u);
  cache.Commit(request, Tokens(request), 9, &blocks);
  cache.Free(&blocks);
  EXPECT_EQ(cache.num_cached_blocks(), 0);
  EXPECT_EQ(NumFound(request, &cache), 0);
}

}  // namespace
}  // namespace pagemill::kv_cache
