#include "cc/kv_cache/kv_cache_manager.h"

#include <vector>

#include "cc/kv_cache/testing/small_caches.h"
#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

TEST(KvCacheManager, AllocatesOnlyWhatTheTokensNeed) {
  KvCacheManager cache(Options(6));
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> added;
  ASSERT_TRUE(cache.Allocate(4, nullptr, &blocks, &added).ok());
  EXPECT_EQ(added, (std::vector<std::vector<BlockId>>{{BlockId(1)}}));
  added.clear();
  EXPECT_TRUE(cache.CanAllocate(blocks, nullptr, 20));
  EXPECT_FALSE(cache.CanAllocate(blocks, nullptr, 21));
  EXPECT_TRUE(cache.CanAllocate(blocks, nullptr, 12, /*num_reserved_blocks=*/2));
  EXPECT_FALSE(cache.CanAllocate(blocks, nullptr, 12, /*num_reserved_blocks=*/3));
  ASSERT_TRUE(cache.Allocate(5, nullptr, &blocks, &added).ok());
  EXPECT_EQ(added, (std::vector<std::vector<BlockId>>{{BlockId(2)}}));
  added.clear();
  ASSERT_TRUE(cache.Allocate(8, nullptr, &blocks, &added).ok());
  EXPECT_TRUE(added.empty());
  EXPECT_EQ(cache.num_free_blocks(), 3);
  const RequestBlocks* holders[] = {&blocks};
  EXPECT_TRUE(cache.CheckIntegrity(holders).ok());
  EXPECT_FALSE(cache.CheckIntegrity({}).ok());  // it must see that they are held
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
  ASSERT_TRUE(cache.Allocate(16, nullptr, &blocks, &added).ok());
  EXPECT_EQ(NumFound(request, &cache), 0);
  cache.Commit(request, Tokens(request), 7, &blocks);
  EXPECT_EQ(NumFound(request, &cache), 4);
  cache.Commit(request, Tokens(request), 8, &blocks);
  EXPECT_EQ(NumFound(request, &cache), 8);
  cache.Free(&blocks);
  EXPECT_EQ(NumFound(request, &cache), 8);
}

TEST(KvCacheManager, SharedBlocksCostNothing) {
  KvCacheManager cache(Options(5));
  const step::Request request = MakeRequest(12);
  RequestBlocks first, second;
  std::vector<std::vector<BlockId>> added;
  ASSERT_TRUE(cache.Allocate(12, nullptr, &first, &added).ok());
  cache.Commit(request, Tokens(request), 12, &first);
  added.clear();

  PrefixMatch match = cache.FindPrefix(request, Tokens(request), &second);
  EXPECT_EQ(match.num_tokens, 8);
  EXPECT_EQ(match.num_free_blocks, 0);
  EXPECT_TRUE(cache.CanAllocate(second, &match, 12));  // 4 usable, 3 held, 1 new
  EXPECT_FALSE(cache.CanAllocate(second, &match, 13));
  ASSERT_TRUE(cache.Allocate(12, &match, &second, &added).ok());
  EXPECT_EQ(added[0], (std::vector<BlockId>{BlockId(1), BlockId(2), BlockId(4)}));
  cache.Free(&first);
  EXPECT_EQ(cache.num_free_blocks(), 1);  // 3; the shared ones are still held
  const RequestBlocks* holders[] = {&second};
  EXPECT_TRUE(cache.CheckIntegrity(holders).ok());

  // Found blocks that no request holds do cost.
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
    // One more block, of another request, with content that is not kept.
    RequestBlocks other;
    std::vector<std::vector<BlockId>> added;
    ASSERT_TRUE(cache.Allocate(4 * (4 - left / 4), nullptr, &other, &added).ok());
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
  ASSERT_TRUE(cache.Allocate(1, nullptr, &blocks, &added).ok());
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

// Each key of its own, with equal tokens, whatever the hash.
TEST(KvCacheManager, SaltsAdaptersAndMediaSeparate) {
  for (HashAlgorithm algorithm : {HashAlgorithm::kXxh3_128, HashAlgorithm::kSha256}) {
    KvCacheOptions options = Options(30);
    options.hash_algorithm = algorithm;
    KvCacheManager cache(options);
    step::Request request = MakeRequest(13, "tenant");
    request.adapter = step::AdapterId(1);
    request.media = {{"cat", 5, 2}};
    RunAndFree(request, 13, &cache);
    EXPECT_EQ(NumFound(request, &cache), 12);
    const auto found_with = [&](auto change) {
      step::Request other = request;
      change(&other);
      return NumFound(other, &cache);
    };
    EXPECT_EQ(found_with([](step::Request* r) { r->cache_salt = "other"; }), 0);
    EXPECT_EQ(found_with([](step::Request* r) { r->cache_salt = ""; }), 0);
    EXPECT_EQ(found_with([](step::Request* r) { r->adapter = step::AdapterId(2); }), 0);
    EXPECT_EQ(found_with([](step::Request* r) { r->adapter = step::kNoAdapter; }), 0);
    // The image is in the second block: the first one is the same.
    EXPECT_EQ(found_with([](step::Request* r) { r->media = {{"dog", 5, 2}}; }), 4);
    EXPECT_EQ(found_with([](step::Request* r) { r->media = {{"cat", 4, 2}}; }), 4);
    EXPECT_EQ(found_with([](step::Request* r) { r->media = {}; }), 4);
  }
}

}  // namespace
}  // namespace pagemill::kv_cache
