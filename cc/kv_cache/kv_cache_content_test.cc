// What is kept, forgotten and told of the content of blocks, beside requests that run.
#include <utility>
#include <vector>

#include "cc/kv_cache/kv_cache_manager.h"
#include "cc/kv_cache/testing/small_caches.h"
#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

std::vector<BlockId> Ids(const std::vector<BlockContent>& contents) {
  std::vector<BlockId> ids;
  for (const BlockContent& content : contents) ids.push_back(content.block);
  return ids;
}

TEST(KvCacheContent, HeldBlocksOutliveTheirRequest) {
  KvCacheManager cache(Options(4));
  const step::Request request = MakeRequest(9);
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> added;
  ASSERT_TRUE(cache.Allocate(9, nullptr, &blocks, &added).ok());
  cache.Commit(request, Tokens(request), 9, &blocks);
  std::vector<BlockContent> contents;
  cache.Contents(blocks, 4, 8, &contents);
  ASSERT_EQ(Ids(contents), std::vector<BlockId>{BlockId(2)});
  EXPECT_EQ(contents[0].hash, cache.Hashes(request, Tokens(request), 9, &blocks)[1]);
  ASSERT_TRUE(cache.Hold(Ids(contents)).ok());
  ASSERT_TRUE(cache.Hold(Ids(contents)).ok());
  cache.Free(&blocks);
  EXPECT_EQ(cache.num_free_blocks(), 2);
  EXPECT_TRUE(cache.CheckIntegrity({}).ok());
  EXPECT_FALSE(cache.CanAllocate(blocks, nullptr, 9));
  ASSERT_TRUE(cache.Unhold(Ids(contents)).ok());
  EXPECT_EQ(cache.num_free_blocks(), 2);
  ASSERT_TRUE(cache.Unhold(Ids(contents)).ok());
  EXPECT_EQ(cache.num_free_blocks(), 3);
  EXPECT_TRUE(cache.CheckIntegrity({}).ok());
}

// A window of one block keeps the last one of four.
TEST(KvCacheContent, WhatAWindowGaveBackIsCachedWhileAQuarterOfThePoolIsFree) {
  for (const auto& [num_blocks, num_cached] : {std::pair<int32_t, size_t>{11, 4}, {5, 3}}) {
    KvCacheManager cache(Options(num_blocks, {{.kind = "sliding_window", .window_tokens = 4}}));
    const step::Request request = MakeRequest(17);
    RequestBlocks blocks;
    std::vector<std::vector<BlockId>> added;
    ASSERT_TRUE(cache.Allocate(16, nullptr, &blocks, &added).ok());
    cache.Commit(request, Tokens(request), 16, &blocks);
    std::vector<BlockContent> held, cached;
    cache.Contents(blocks, 0, 16, &held);
    EXPECT_EQ(held.size(), 1u);
    cache.CachedContents(blocks, 0, 16, &cached);
    EXPECT_EQ(cached.size(), num_cached);
    EXPECT_EQ(Ids(cached).front(), added[0].front());
    EXPECT_EQ(Ids(cached).back(), Ids(held).front());
    ASSERT_TRUE(cache.Hold(Ids(cached)).ok());
    EXPECT_GE(cache.num_free_blocks(), cache.num_usable_blocks() / 4);
    ASSERT_TRUE(cache.Unhold(Ids(cached)).ok());
    cache.Free(&blocks);
    EXPECT_TRUE(cache.CheckIntegrity({}).ok());
  }
}

TEST(KvCacheContent, OnlyWhatWasLoadedIsFound) {
  KvCacheManager cache(Options(8));
  const step::Request request = MakeRequest(17);
  RequestBlocks blocks;
  PrefixMatch match = cache.FindPrefix(request, Tokens(request), &blocks);
  ASSERT_TRUE(cache.AllocateForLoad(16, &match, &blocks).ok());
  std::vector<BlockContent> contents;
  cache.Contents(blocks, 0, 16, &contents);
  EXPECT_EQ(contents.size(), 4u);
  EXPECT_EQ(NumFound(request, &cache), 0);
  cache.Commit(request, Tokens(request), 8, &blocks);
  EXPECT_TRUE(cache.TruncateComputed(8, &blocks));
  EXPECT_EQ(NumFound(request, &cache), 8);
  EXPECT_EQ(blocks.groups()[0].size(), 2u);
  const RequestBlocks* holders[] = {&blocks};
  EXPECT_TRUE(cache.CheckIntegrity(holders).ok());
  std::vector<std::vector<BlockId>> added;
  ASSERT_TRUE(cache.Allocate(17, nullptr, &blocks, &added).ok());
  EXPECT_EQ(added[0].size(), 3u);
  cache.Free(&blocks);
}

TEST(KvCacheContent, PinnedContentIsNotEvicted) {
  KvCacheOptions options = Options(6);
  options.max_pinned_blocks = 2;
  KvCacheManager cache(options);
  EXPECT_EQ(cache.num_request_blocks(), 3);
  const step::Request request = MakeRequest(13);
  RequestBlocks blocks;
  const auto hashes = [&](int32_t n) { return cache.Hashes(request, Tokens(request), n, &blocks); };
  EXPECT_EQ(cache.Pin(hashes(8)).status().code(), StatusCode::kNotFound);
  RunAndFree(request, 13, &cache);
  EXPECT_EQ(cache.Pin(hashes(12)).status().code(), StatusCode::kResourceExhausted);
  const StatusOr<PinId> pin = cache.Pin(hashes(8));
  ASSERT_TRUE(pin.ok());
  EXPECT_EQ(cache.num_pinned_blocks(), 2);
  EXPECT_TRUE(cache.CheckIntegrity({}).ok());
  RunAndFree(MakeRequest(12, "other"), 12, &cache);
  EXPECT_EQ(NumFound(request, &cache), 8);
  EXPECT_TRUE(cache.Unpin(*pin));
  EXPECT_FALSE(cache.Unpin(*pin));
  EXPECT_EQ(cache.num_free_blocks(), 5);
  EXPECT_TRUE(cache.CheckIntegrity({}).ok());
}

TEST(KvCacheContent, PinsWithoutRoomAreRefusedByName) {
  KvCacheManager cache(Options(8));
  const step::Request request = MakeRequest(9);
  RequestBlocks blocks;
  RunAndFree(request, 9, &cache);
  const Status status = cache.Pin(cache.Hashes(request, Tokens(request), 8, &blocks)).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("max_pinned_blocks, 0"), std::string::npos);
  EXPECT_EQ(cache.num_free_blocks(), 7);
}

TEST(KvCacheContent, APinCountsThePagesOfAllGroupsAndOnceForEachPin) {
  KvCacheOptions options = Options(20, {{"full"}, {.kind = "mla", .pages_per_block = 2}});
  options.max_pinned_blocks = 8;
  KvCacheManager cache(options);
  const step::Request request = MakeRequest(9);
  RunAndFree(request, 9, &cache);
  RequestBlocks blocks;
  const std::span<const BlockHash> hashes = cache.Hashes(request, Tokens(request), 8, &blocks);
  const StatusOr<PinId> both = cache.Pin(hashes), one = cache.Pin(hashes.first(0));
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(cache.num_pinned_blocks(), 6);
  EXPECT_EQ(one.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(cache.Pin(hashes.first(1)).status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(cache.Unpin(*both));
  EXPECT_EQ(cache.num_pinned_blocks(), 0);
  const StatusOr<PinId> first = cache.Pin(hashes.first(1)), again = cache.Pin(hashes.first(1));
  EXPECT_NE(*first, *again);
  EXPECT_EQ(cache.num_pinned_blocks(), 6);
  EXPECT_TRUE(cache.Unpin(*first));
  EXPECT_EQ(cache.num_free_blocks(), 16);  // the other pin holds on
  EXPECT_TRUE(cache.CheckIntegrity({}).ok());
}

TEST(KvCacheContent, PinsGoWithTheContent) {
  KvCacheOptions options = Options(8);
  options.max_pinned_blocks = 4;
  KvCacheManager cache(options);
  const step::Request request = MakeRequest(9);
  RunAndFree(request, 9, &cache);
  RequestBlocks blocks;
  const StatusOr<PinId> pin = cache.Pin(cache.Hashes(request, Tokens(request), 8, &blocks));
  ASSERT_TRUE(pin.ok());
  EXPECT_TRUE(cache.Reset());
  EXPECT_EQ(cache.num_pinned_blocks(), 0);
  EXPECT_EQ(cache.num_free_blocks(), 7);
  EXPECT_FALSE(cache.Unpin(*pin));
}

TEST(KvCacheContent, CommonPrefixOfAllHolders) {
  KvCacheManager cache(Options(30));
  const step::Request request = MakeRequest(17);
  const auto common = [&cache](const RequestBlocks& blocks) {
    std::vector<int32_t> counts;
    cache.NumCommonPrefixBlocks(blocks, &counts);
    return counts;
  };
  RequestBlocks first, second, third;
  std::vector<std::vector<BlockId>> added;
  ASSERT_TRUE(cache.Allocate(17, nullptr, &first, &added).ok());
  EXPECT_EQ(common(first), std::vector<int32_t>{0});  // nothing is computed
  cache.Commit(request, Tokens(request), 17, &first);
  EXPECT_EQ(common(first), std::vector<int32_t>{4});
  const step::Request shorter = MakeRequest(9);
  PrefixMatch match = cache.FindPrefix(shorter, Tokens(shorter), &second);
  ASSERT_TRUE(cache.Allocate(9, &match, &second, &added).ok());
  EXPECT_EQ(common(second), std::vector<int32_t>{2});
  const BlockId held[] = {first.groups()[0][2]};  // a transfer is no request
  ASSERT_TRUE(cache.Hold(held).ok());
  EXPECT_EQ(common(first), std::vector<int32_t>{2});
  ASSERT_TRUE(cache.Allocate(1, nullptr, &third, &added).ok());
  EXPECT_EQ(common(first), std::vector<int32_t>{0});
  cache.Free(&third);
  EXPECT_EQ(common(first), std::vector<int32_t>{2});
  cache.Free(&second);
  EXPECT_EQ(common(first), std::vector<int32_t>{4});
  ASSERT_TRUE(cache.Unhold(held).ok());
  cache.Free(&first);
}

TEST(KvCacheContent, ForgottenContentDoesNotComeBack) {
  KvCacheManager cache(Options(30));
  const step::Request request = MakeRequest(13);
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> added;
  ASSERT_TRUE(cache.Allocate(13, nullptr, &blocks, &added).ok());
  cache.Commit(request, Tokens(request), 8, &blocks);
  cache.ForgetContent();
  EXPECT_EQ(NumFound(request, &cache), 0);
  cache.Commit(request, Tokens(request), 13, &blocks);  // continues from forgotten content
  EXPECT_EQ(NumFound(request, &cache), 0);
  const RequestBlocks* holders[] = {&blocks};
  EXPECT_TRUE(cache.CheckIntegrity(holders).ok());
  cache.Free(&blocks);
  RunAndFree(request, 13, &cache);
  EXPECT_EQ(NumFound(request, &cache), 12);
}

TEST(KvCacheContent, EventsTellWhatCameAndWent) {
  KvCacheOptions options = Options(5);
  options.max_events = 10;
  KvCacheManager cache(options);
  ASSERT_NE(cache.events(), nullptr);
  const step::Request request = MakeRequest(13, "salt");
  RunAndFree(request, 9, &cache);
  RunAndFree(request, 13, &cache);  // two of its blocks are known
  RunAndFree(MakeRequest(16), 16, &cache);
  cache.ForgetContent();
  const std::vector<KvEvent> events = *cache.events()->Since(1);
  RequestBlocks blocks;
  const auto hashes = cache.Hashes(request, Tokens(request), 12, &blocks);
  using Hashes = std::vector<BlockHash>;
  ASSERT_EQ(events.size(), 7u);
  EXPECT_EQ(events[0].type, KvEvent::Type::kStored);
  EXPECT_EQ(events[0].hashes, Hashes(hashes.begin(), hashes.begin() + 2));
  EXPECT_TRUE(events[0].parent.empty());
  EXPECT_EQ(events[0].token_ids, (std::vector<int32_t>{100, 101, 102, 103, 104, 105, 106, 107}));
  EXPECT_EQ(events[0].extra_keys, (std::vector<std::string>{ExtraKeys(request, 0, 4), ""}));
  EXPECT_EQ(events[0].block_size, 4);
  EXPECT_EQ(events[0].medium, "pool");
  EXPECT_EQ(events[1].hashes, Hashes{hashes[2]});
  EXPECT_EQ(events[1].parent, hashes[1]);
  EXPECT_EQ(events[2].type, KvEvent::Type::kRemoved);
  EXPECT_EQ(events[2].hashes, Hashes{hashes[2]});
  EXPECT_EQ(events[5].type, KvEvent::Type::kStored);
  EXPECT_EQ(events[6].type, KvEvent::Type::kCleared);
  EXPECT_EQ(KvCacheManager(Options(5)).events(), nullptr);
}

}  // namespace
}  // namespace pagemill::kv_cache
