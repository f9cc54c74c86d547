#include "cc/kv_cache/kv_cache_manager.h"

#include <numeric>
#include <vector>

#include "cc/kv_cache/kinds/kinds.h"
#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

KvCacheOptions Options(int32_t num_blocks, std::vector<KvGroupOptions> groups = {{"full"}}) {
  KvCacheOptions options;
  options.num_blocks = num_blocks;
  options.block_size = 4;
  options.groups = std::move(groups);
  return options;
}

step::Request MakeRequest(int32_t prompt_size, const std::string& salt = "") {
  step::Request request;
  request.prompt_token_ids.resize(static_cast<size_t>(prompt_size));
  std::iota(request.prompt_token_ids.begin(), request.prompt_token_ids.end(), 100);
  request.cache_salt = salt;
  return request;
}

step::TokenSequence Tokens(const step::Request& request) { return {request.prompt_token_ids, {}}; }

// Runs `request` as far as `num_tokens`, from what is cached of it, and gives its blocks back.
void RunAndFree(const step::Request& request, int32_t num_tokens, KvCacheManager* cache) {
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> added;
  const PrefixMatch match = cache->FindPrefix(request, Tokens(request), &blocks);
  ASSERT_TRUE(cache->CanAllocate(blocks, &match, num_tokens));
  cache->Allocate(num_tokens, &match, &blocks, &added);
  cache->Commit(request, Tokens(request), num_tokens, &blocks);
  cache->Free(&blocks);
}

int32_t NumFound(const step::Request& request, KvCacheManager* cache) {
  RequestBlocks blocks;
  return cache->FindPrefix(request, Tokens(request), &blocks).num_tokens;
}

TEST(KvCacheManager, AllocatesOnlyWhatTheTokensNeed) {
  KvCacheManager cache(Options(6));
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> added;
  cache.Allocate(4, nullptr, &blocks, &added);
  EXPECT_EQ(added, (std::vector<std::vector<BlockId>>{{BlockId(1)}}));
  added.clear();
  EXPECT_TRUE(cache.CanAllocate(blocks, nullptr, 20));
  EXPECT_FALSE(cache.CanAllocate(blocks, nullptr, 21));
  EXPECT_TRUE(cache.CanAllocate(blocks, nullptr, 12, /*num_reserved_blocks=*/2));
  EXPECT_FALSE(cache.CanAllocate(blocks, nullptr, 12, /*num_reserved_blocks=*/3));
  cache.Allocate(5, nullptr, &blocks, &added);
  EXPECT_EQ(added, (std::vector<std::vector<BlockId>>{{BlockId(2)}}));
  added.clear();
  cache.Allocate(8, nullptr, &blocks, &added);
  EXPECT_TRUE(added.empty());
  EXPECT_EQ(cache.num_free_blocks(), 3);
  const RequestBlocks* holders[] = {&blocks};
  EXPECT_TRUE(cache.CheckIntegrity(holders).ok());
  EXPECT_FALSE(cache.CheckIntegrity({}).ok());  // it must see that somebody holds them
  cache.Free(&blocks);
  EXPECT_TRUE(cache.CheckIntegrity({}).ok());
}

TEST(KvCacheManager, OneTokenIsAlwaysLeftToCompute) {
  for (int32_t size = 1; size <= 13; ++size) {
    KvCacheManager cache(Options(8));
    const step::Request request = MakeRequest(size);
    RunAndFree(request, size, &cache);
    EXPECT_EQ(NumFound(request, &cache), (size - 1) / 4 * 4) << size;
  }
}

TEST(KvCacheManager, OnlyComputedTokensAreFound) {
  KvCacheManager cache(Options(8));
  const step::Request request = MakeRequest(16);
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> added;
  cache.Allocate(16, nullptr, &blocks, &added);
  EXPECT_EQ(NumFound(request, &cache), 0);
  cache.Commit(request, Tokens(request), 7, &blocks);
  EXPECT_EQ(NumFound(request, &cache), 4);
  cache.Commit(request, Tokens(request), 8, &blocks);
  EXPECT_EQ(NumFound(request, &cache), 8);
  cache.Free(&blocks);
  EXPECT_EQ(NumFound(request, &cache), 8);
}

TEST(KvCacheManager, SaltsSeparate) {
  KvCacheManager cache(Options(16));
  RunAndFree(MakeRequest(9, "a"), 9, &cache);
  EXPECT_EQ(NumFound(MakeRequest(9, "a"), &cache), 8);
  EXPECT_EQ(NumFound(MakeRequest(9, "b"), &cache), 0);
  EXPECT_EQ(NumFound(MakeRequest(9), &cache), 0);
}

TEST(KvCacheManager, SharedBlocksCostNothing) {
  KvCacheManager cache(Options(5));
  const step::Request request = MakeRequest(12);
  RequestBlocks first, second;
  std::vector<std::vector<BlockId>> added;
  cache.Allocate(12, nullptr, &first, &added);
  cache.Commit(request, Tokens(request), 12, &first);
  added.clear();

  PrefixMatch match = cache.FindPrefix(request, Tokens(request), &second);
  EXPECT_EQ(match.num_tokens, 8);
  EXPECT_EQ(match.num_free_blocks, 0);
  EXPECT_TRUE(cache.CanAllocate(second, &match, 12));  // 4 usable, 3 held, 1 new
  EXPECT_FALSE(cache.CanAllocate(second, &match, 13));
  cache.Allocate(12, &match, &second, &added);
  EXPECT_EQ(added[0], (std::vector<BlockId>{BlockId(1), BlockId(2), BlockId(4)}));
  cache.Free(&first);
  EXPECT_EQ(cache.num_free_blocks(), 1);  // 3; the shared ones are still held
  const RequestBlocks* holders[] = {&second};
  EXPECT_TRUE(cache.CheckIntegrity(holders).ok());

  // Found blocks that nobody holds do cost.
  cache.Free(&second);
  RequestBlocks third;
  match = cache.FindPrefix(request, Tokens(request), &third);
  EXPECT_EQ(match.num_free_blocks, 2);
  EXPECT_TRUE(cache.CanAllocate(third, &match, 16));
  EXPECT_FALSE(cache.CanAllocate(third, &match, 17));
}

TEST(KvCacheManager, TheEndOfAPrefixIsEvictedFirst) {
  KvCacheManager cache(Options(5));
  const step::Request request = MakeRequest(17);
  RunAndFree(request, 16, &cache);
  EXPECT_EQ(NumFound(request, &cache), 16);
  for (int32_t left : {12, 8, 4, 0}) {
    // One block more of somebody else, with content that is not kept.
    RequestBlocks other;
    std::vector<std::vector<BlockId>> added;
    cache.Allocate(4 * (4 - left / 4), nullptr, &other, &added);
    EXPECT_EQ(NumFound(request, &cache), left);
    cache.Free(&other);
  }
  EXPECT_EQ(cache.num_evictions(), 4);
}

TEST(KvCacheManager, ResetOnlyWhileNobodyHoldsBlocks) {
  KvCacheManager cache(Options(8));
  const step::Request request = MakeRequest(9);
  RunAndFree(request, 9, &cache);
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> added;
  cache.Allocate(1, nullptr, &blocks, &added);
  EXPECT_FALSE(cache.Reset());
  EXPECT_EQ(NumFound(request, &cache), 8);
  cache.Free(&blocks);
  EXPECT_TRUE(cache.Reset());
  EXPECT_EQ(NumFound(request, &cache), 0);
}

TEST(KvCacheManager, WithoutPrefixCachingNothingIsFound) {
  KvCacheOptions options = Options(8);
  options.enable_prefix_caching = false;
  KvCacheManager cache(options);
  RunAndFree(MakeRequest(9), 9, &cache);
  EXPECT_EQ(NumFound(MakeRequest(9), &cache), 0);
  EXPECT_EQ(cache.num_cached_blocks(), 0);
}

TEST(KvCacheManager, GroupsHaveTablesOfTheirOwn) {
  KvCacheManager cache(Options(9, {{"full"}, {"full"}}));
  const step::Request request = MakeRequest(9);
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> added;
  EXPECT_EQ(cache.NumBlocks(9), 6);
  cache.Allocate(9, nullptr, &blocks, &added);
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
  cache.Allocate(12, nullptr, &blocks, &taken);
  EXPECT_EQ(NumFound(request, &cache), 4);
  cache.Free(&blocks);
}

TEST(KvCacheManager, AModelWithoutKvNeedsNoBlocks) {
  KvCacheManager cache(Options(1, {}));
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> added;
  const step::Request request = MakeRequest(9);
  EXPECT_EQ(NumFound(request, &cache), 0);
  EXPECT_TRUE(cache.CanAllocate(blocks, nullptr, 1000));
  cache.Allocate(1000, nullptr, &blocks, &added);
  EXPECT_TRUE(added.empty());
  cache.Commit(request, Tokens(request), 9, &blocks);
  cache.Free(&blocks);
  EXPECT_TRUE(cache.CheckIntegrity({}).ok());
}

std::vector<BlockId> Ids(const std::vector<BlockContent>& contents) {
  std::vector<BlockId> ids;
  for (const BlockContent& content : contents) ids.push_back(content.block);
  return ids;
}

TEST(KvCacheManager, HeldBlocksOutliveTheirRequest) {
  KvCacheManager cache(Options(4));
  const step::Request request = MakeRequest(9);
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> added;
  cache.Allocate(9, nullptr, &blocks, &added);
  cache.Commit(request, Tokens(request), 9, &blocks);
  std::vector<BlockContent> contents;
  cache.Contents(blocks, 4, 8, &contents);
  ASSERT_EQ(Ids(contents), std::vector<BlockId>{BlockId(2)});
  EXPECT_EQ(contents[0].hash, cache.Hashes(request, Tokens(request), 9, &blocks)[1]);
  cache.Hold(Ids(contents));
  cache.Hold(Ids(contents));
  cache.Free(&blocks);
  EXPECT_EQ(cache.num_free_blocks(), 2);
  EXPECT_TRUE(cache.CheckIntegrity({}).ok());
  EXPECT_FALSE(cache.CanAllocate(blocks, nullptr, 9));
  cache.Unhold(Ids(contents));
  EXPECT_EQ(cache.num_free_blocks(), 2);
  cache.Unhold(Ids(contents));
  EXPECT_EQ(cache.num_free_blocks(), 3);
  EXPECT_TRUE(cache.CheckIntegrity({}).ok());
}

TEST(KvCacheManager, OnlyWhatWasLoadedIsFound) {
  KvCacheManager cache(Options(8));
  const step::Request request = MakeRequest(17);
  RequestBlocks blocks;
  PrefixMatch match = cache.FindPrefix(request, Tokens(request), &blocks);
  cache.AllocateForLoad(16, &match, &blocks);
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
  cache.Allocate(17, nullptr, &blocks, &added);
  EXPECT_EQ(added[0].size(), 3u);
  cache.Free(&blocks);
}

TEST(KvCacheManager, PinnedContentIsNotEvicted) {
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

TEST(KvCacheManager, WindowsGiveBlocksBackAsTheRequestGoesOn) {
  KvCacheOptions options = Options(20, {{.kind = "sliding_window", .window_tokens = 8}});
  options.max_step_tokens = 4;
  options.max_steps_in_flight = 1;
  KvCacheManager cache(options);
  const step::Request request = MakeRequest(61);
  RequestBlocks blocks;
  for (int32_t end = 4; end <= 60; end += 4) {
    std::vector<std::vector<BlockId>> added;
    EXPECT_TRUE(cache.CanAllocate(blocks, nullptr, end));
    cache.Allocate(end, nullptr, &blocks, &added);
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

TEST(KvCacheManager, GroupsAgreeOnTheLengthOfAPrefix) {
  // Blocks of 4 and of 8 tokens: prefixes of 8, 16, ... are usable.
  KvCacheManager cache(Options(20, {{"full"}, {.kind = "full", .block_size = 8}}));
  EXPECT_EQ(cache.prefix_grain_tokens(), 8);
  EXPECT_EQ(cache.NumBlocks(21), 6 + 3);
  const step::Request request = MakeRequest(21);
  RunAndFree(request, 21, &cache);
  EXPECT_EQ(NumFound(request, &cache), 16);
  EXPECT_EQ(NumFound(MakeRequest(15), &cache), 8);
}

TEST(KvCacheManager, BlocksOfSeveralPages) {
  KvCacheManager cache(Options(10, {{.kind = "mla", .pages_per_block = 3}}));
  const step::Request request = MakeRequest(9);
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> added;
  EXPECT_EQ(cache.NumBlocks(9), 9);
  EXPECT_FALSE(cache.CanAllocate(blocks, nullptr, 13));
  cache.Allocate(9, nullptr, &blocks, &added);
  EXPECT_EQ(added[0].size(), 9u);
  cache.Commit(request, Tokens(request), 9, &blocks);
  cache.Free(&blocks);
  EXPECT_EQ(cache.num_cached_blocks(), 2);
  const PrefixMatch match = cache.FindPrefix(request, Tokens(request), &blocks);
  EXPECT_EQ(match.num_tokens, 8);
  EXPECT_EQ(match.num_free_blocks, 6);
  EXPECT_EQ(match.groups[0], std::vector<BlockId>(added[0].begin(), added[0].begin() + 6));
}

TEST(KvCacheManager, StatesOfEarlierTurnsGoFirst) {
  KvCacheManager cache(Options(22, {{"full"}, {"state_space"}}));
  const auto has_states = [&](const step::Request& request) {
    std::vector<int32_t> ends;
    for (int32_t end = 4; end < 40; end += 4) {
      step::Request prefix = request;
      prefix.prompt_token_ids.resize(static_cast<size_t>(end) + 1);
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
    cache.Allocate(size, &match, &blocks, &added);
    cache.Commit(turn, Tokens(turn), size, &blocks);
    cache.Free(&blocks);
  }
  EXPECT_EQ(has_states(turns[2]), (std::vector<int32_t>{12, 20, 28}));
  // 10 blocks are cached; of those, the state that the first turn left is the first to go: the
  // third went on from the one after it. 9 blocks of tokens and a state, then one more of both.
  RequestBlocks other;
  std::vector<std::vector<BlockId>> added;
  cache.AllocateForLoad(36, nullptr, &other);
  EXPECT_EQ(has_states(turns[2]), (std::vector<int32_t>{12, 20, 28}));
  cache.Allocate(40, nullptr, &other, &added);
  EXPECT_EQ(has_states(turns[2]), (std::vector<int32_t>{20, 28}));
  cache.Free(&other);
}

TEST(KvCacheManager, CrossAttentionIsNeverShared) {
  KvCacheManager cache(Options(20, {{"full"}, {"cross"}}));
  step::Request request = MakeRequest(9);
  request.media = {{"speech", 0, 6}};
  RequestBlocks blocks(request);
  std::vector<std::vector<BlockId>> added;
  cache.Allocate(9, nullptr, &blocks, &added);
  EXPECT_EQ(added[1].size(), 2u);
  cache.Commit(request, Tokens(request), 9, &blocks);
  cache.Free(&blocks);
  EXPECT_EQ(cache.num_cached_blocks(), 0);
  EXPECT_EQ(NumFound(request, &cache), 0);
}

TEST(KvCacheManager, AdaptersAndMediaSeparate) {
  KvCacheManager cache(Options(30));
  step::Request request = MakeRequest(13);
  request.media = {{"cat", 5, 2}};
  RunAndFree(request, 13, &cache);
  EXPECT_EQ(NumFound(request, &cache), 12);
  request.media[0].content_id = "dog";
  EXPECT_EQ(NumFound(request, &cache), 4);
  request.adapter = step::AdapterId(1);
  EXPECT_EQ(NumFound(request, &cache), 0);
}

TEST(KvCacheManager, CommonPrefixOfAllHolders) {
  KvCacheManager cache(Options(30));
  const step::Request request = MakeRequest(17);
  const auto common = [&cache](const RequestBlocks& blocks) {
    std::vector<int32_t> counts;
    cache.NumCommonPrefixBlocks(blocks, &counts);
    return counts;
  };
  RequestBlocks first, second, third;
  std::vector<std::vector<BlockId>> added;
  cache.Allocate(17, nullptr, &first, &added);
  EXPECT_EQ(common(first), std::vector<int32_t>{0});  // nothing is computed
  cache.Commit(request, Tokens(request), 17, &first);
  EXPECT_EQ(common(first), std::vector<int32_t>{4});
  const step::Request shorter = MakeRequest(9);
  PrefixMatch match = cache.FindPrefix(shorter, Tokens(shorter), &second);
  cache.Allocate(9, &match, &second, &added);
  EXPECT_EQ(common(second), std::vector<int32_t>{2});
  const BlockId held[] = {first.groups()[0][2]};  // a transfer is no request
  cache.Hold(held);
  EXPECT_EQ(common(first), std::vector<int32_t>{2});
  cache.Allocate(1, nullptr, &third, &added);
  EXPECT_EQ(common(first), std::vector<int32_t>{0});
  cache.Free(&third);
  EXPECT_EQ(common(first), std::vector<int32_t>{2});
  cache.Free(&second);
  EXPECT_EQ(common(first), std::vector<int32_t>{4});
  cache.Unhold(held);
  cache.Free(&first);
}

TEST(KvCacheManager, ForgottenContentDoesNotComeBack) {
  KvCacheManager cache(Options(30));
  const step::Request request = MakeRequest(13);
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> added;
  cache.Allocate(13, nullptr, &blocks, &added);
  cache.Commit(request, Tokens(request), 8, &blocks);
  cache.ForgetContent();
  EXPECT_EQ(NumFound(request, &cache), 0);
  cache.Commit(request, Tokens(request), 13, &blocks);  // goes on from forgotten content
  EXPECT_EQ(NumFound(request, &cache), 0);
  const RequestBlocks* holders[] = {&blocks};
  EXPECT_TRUE(cache.CheckIntegrity(holders).ok());
  cache.Free(&blocks);
  RunAndFree(request, 13, &cache);
  EXPECT_EQ(NumFound(request, &cache), 12);
}

TEST(KvCacheManager, EventsTellWhatCameAndWent) {
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

TEST(KvCacheOptions, DraftsNeedGroupsThatCanGoBack) {
  EXPECT_TRUE(
      Options(9, {{"full"}, {.kind = "sliding_window", .window_tokens = 4}}).CanRejectTokens());
  EXPECT_FALSE(Options(9, {{"full"}, {"state_space"}}).CanRejectTokens());
}

TEST(KvCacheOptions, RefusalsNameTheField) {
  EXPECT_TRUE(Options(2).Validate().ok());
  const auto message = [](KvCacheOptions options) { return options.Validate().message(); };
  EXPECT_NE(message(Options(1)).find("num_blocks"), std::string::npos);
  EXPECT_NE(message(Options(2, {{"fuller"}})).find("fuller"), std::string::npos);
  KvCacheOptions options = Options(2);
  options.block_size = 0;
  EXPECT_NE(message(options).find("block_size"), std::string::npos);
  options = Options(4);
  options.eviction = "fifo";
  EXPECT_NE(message(options).find("fifo"), std::string::npos);
  options = Options(4);
  options.max_events = -1;
  EXPECT_NE(message(options).find("max_events"), std::string::npos);
  options = Options(4);
  options.max_step_tokens = -1;
  EXPECT_NE(message(options).find("max_step_tokens"), std::string::npos);
  options = Options(4);
  options.max_steps_in_flight = 0;
  EXPECT_NE(message(options).find("max_steps_in_flight"), std::string::npos);
  options = Options(4);
  options.max_pinned_blocks = 3;
  EXPECT_NE(message(options).find("max_pinned_blocks"), std::string::npos);
}

}  // namespace
}  // namespace pagemill::kv_cache
