// Mistakes of a host that uses the cache manager by itself: each is a status, and changes nothing.
#include <memory>
#include <random>
#include <vector>

#include "cc/kv_cache/kv_cache_manager.h"
#include "cc/kv_cache/testing/small_caches.h"
#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

TEST(KvCacheMisuse, OptionsThatMakeNoSense) {
  KvCacheOptions options = Options(8);
  EXPECT_TRUE(KvCacheManager::Create(options).ok());
  options.block_size = 0;
  EXPECT_EQ(KvCacheManager::Create(options).status().code(), StatusCode::kInvalidArgument);
  options = Options(0);
  EXPECT_EQ(KvCacheManager::Create(options).status().code(), StatusCode::kInvalidArgument);
  options = Options(8, {{"no such kind"}});
  EXPECT_EQ(KvCacheManager::Create(options).status().code(), StatusCode::kInvalidArgument);
}

TEST(KvCacheMisuse, MoreBlocksThanAreFree) {
  for (const char* kind : {"full", "mla", "state_space"}) {
    KvCacheManager cache(Options(5, {{"full"}, {kind}}));
    RequestBlocks blocks;
    std::vector<std::vector<BlockId>> added;
    const int32_t num_free = cache.num_free_blocks();
    EXPECT_EQ(cache.Allocate(40, nullptr, &blocks, &added).code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(cache.AllocateForLoad(40, nullptr, &blocks).code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(cache.num_free_blocks(), num_free);
    EXPECT_TRUE(blocks.empty() && added.empty());
    ASSERT_TRUE(cache.Allocate(4, nullptr, &blocks, &added).ok());
    EXPECT_EQ(cache.Allocate(40, nullptr, &blocks, &added).code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(cache.AllocateForLoad(4, nullptr, &blocks).code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(cache.CheckIntegrity({{&blocks}}).ok());
    cache.Free(&blocks);
    cache.Free(&blocks);  // again: it holds none
    EXPECT_EQ(cache.num_free_blocks(), num_free);
  }
}

TEST(KvCacheMisuse, APrefixMatchOfAnotherCache) {
  KvCacheManager cache(Options(8, {{"full"}, {"full"}}));
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> added;
  PrefixMatch match;
  match.num_tokens = 4;
  match.groups = {{BlockId(1)}};
  EXPECT_EQ(cache.Allocate(5, &match, &blocks, &added).code(), StatusCode::kInvalidArgument);
}

TEST(KvCacheMisuse, NumbersOfTokensThatFillNoBlock) {
  KvCacheManager cache(Options(8));
  const step::Request request = MakeRequest(9);
  RequestBlocks blocks(request);
  EXPECT_EQ(cache.AllocateForLoad(3, nullptr, &blocks).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(cache.AllocateForLoad(-4, nullptr, &blocks).code(), StatusCode::kInvalidArgument);
  std::vector<std::vector<BlockId>> added;
  ASSERT_TRUE(cache.Allocate(9, nullptr, &blocks, &added).ok());
  EXPECT_EQ(cache.Hashes(request, Tokens(request), 1000, &blocks).size(), 2u);
  std::vector<BlockContent> contents;
  cache.Contents(blocks, 1, 9, &contents);
  EXPECT_EQ(contents.size(), 1u);  // the block of tokens 4 to 7
  cache.Contents(blocks, -8, 1000, &contents);
  EXPECT_EQ(contents.size(), 3u);
  EXPECT_FALSE(cache.TruncateComputed(3, &blocks));
  EXPECT_FALSE(cache.TruncateComputed(-1, &blocks));
  EXPECT_EQ(cache.FindPrefix(request, Tokens(request), &blocks).num_tokens, 0);  // it holds blocks
  cache.Free(&blocks);
}

TEST(KvCacheMisuse, OnlyCoveredTokensAreCommitted) {
  KvCacheManager cache(Options(8));
  const step::Request request = MakeRequest(13);
  RequestBlocks blocks(request);
  std::vector<std::vector<BlockId>> added;
  ASSERT_TRUE(cache.Allocate(8, nullptr, &blocks, &added).ok());
  cache.Commit(request, Tokens(request), 13, &blocks);
  EXPECT_EQ(blocks.num_committed_tokens(), 8);
  ASSERT_TRUE(cache.Allocate(20, nullptr, &blocks, &added).ok());
  cache.Commit(request, Tokens(request), 20, &blocks);
  EXPECT_EQ(blocks.num_committed_tokens(), 12);  // of 13 tokens
  EXPECT_TRUE(cache.CheckIntegrity({{&blocks}}).ok());
  cache.Free(&blocks);
}

TEST(KvCacheMisuse, HoldsOfWrongBlocks) {
  KvCacheManager cache(Options(8));
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> added;
  ASSERT_TRUE(cache.Allocate(8, nullptr, &blocks, &added).ok());
  const std::vector<BlockId> held = blocks.groups()[0];
  for (const BlockId wrong : {kNullBlock, BlockId(8), BlockId(-1)}) {
    EXPECT_EQ(cache.Hold({{held[0], wrong}}).code(), StatusCode::kInvalidArgument);
  }
  ASSERT_TRUE(cache.Hold(held).ok());
  EXPECT_EQ(cache.Unhold({{held[0], held[1], held[0]}}).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(cache.CheckIntegrity({{&blocks}}).ok());
  ASSERT_TRUE(cache.Unhold(held).ok());
  EXPECT_EQ(cache.Unhold(held).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(cache.Unpin(PinId(1)));
  cache.Free(&blocks);
  EXPECT_EQ(cache.num_free_blocks(), 7);
}

// A host that never asks CanAllocate() and confuses its numbers.
TEST(KvCacheMisuse, RandomCallsLeaveTheCacheIntact) {
  std::mt19937 random(1);
  const auto draw = [&random](int32_t most) { return static_cast<int32_t>(random() % (most + 1)); };
  const std::vector<std::vector<KvGroupOptions>> setups = {
      {{"full"}},
      {{"full"}, {.kind = "sliding_window", .window_tokens = 6}},
      {{"full"}, {"state_space"}},
      {{.kind = "full", .block_size = 8}, {.kind = "mla", .pages_per_block = 2}}};
  for (const std::vector<KvGroupOptions>& groups : setups) {
    KvCacheManager cache(Options(14, groups));
    std::vector<step::Request> requests;
    for (int32_t i = 0; i < 4; ++i) requests.push_back(MakeRequest(10 + 9 * i));
    std::vector<RequestBlocks> blocks(requests.begin(), requests.end());
    const std::vector<const RequestBlocks*> holders = {&blocks[0], &blocks[1], &blocks[2],
                                                       &blocks[3]};
    std::vector<std::vector<BlockId>> holds;
    for (int i = 0; i < 10000; ++i) {
      const size_t at = random() % requests.size();
      const step::Request& request = requests[at];
      std::vector<std::vector<BlockId>> added;
      std::vector<BlockContent> contents;
      const PrefixMatch match = cache.FindPrefix(request, Tokens(request), &blocks[at]);
      switch (draw(7)) {
        case 0:
        case 1:
          static_cast<void>(cache.Allocate(draw(60) - 4, &match, &blocks[at], &added));
          break;
        case 2:
          static_cast<void>(cache.AllocateForLoad(draw(40) - 4, &match, &blocks[at]));
          break;
        case 3:
          cache.Commit(request, Tokens(request), draw(60) - 4, &blocks[at]);
          break;
        case 4:
          if (!cache.TruncateComputed(draw(40) - 4, &blocks[at])) cache.Free(&blocks[at]);
          break;
        case 5:
          cache.Contents(blocks[at], draw(50) - 4, draw(50), &contents);
          cache.CachedContents(blocks[at], draw(50) - 4, draw(50), &contents);
          holds.emplace_back();
          for (const BlockContent& content : contents) holds.back().push_back(content.block);
          if (!cache.Hold(holds.back()).ok()) holds.pop_back();
          break;
        case 6:
          if (!holds.empty()) {
            ASSERT_TRUE(cache.Unhold(holds.back()).ok());
            holds.pop_back();
          }
          static_cast<void>(cache.Unhold({{BlockId(20 + draw(9))}}));
          break;
        default:
          cache.Free(&blocks[at]);
      }
      const Status intact = cache.CheckIntegrity(holders);
      ASSERT_TRUE(intact.ok()) << "call " << i << ": " << intact.ToString();
    }
    for (RequestBlocks& each : blocks) cache.Free(&each);
  }
}

}  // namespace
}  // namespace pagemill::kv_cache
