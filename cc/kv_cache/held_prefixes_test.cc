#include "cc/kv_cache/held_prefixes.h"

#include <gtest/gtest.h>

#include <vector>

namespace pagemill::kv_cache {
namespace {

class HeldPrefixesTest : public testing::Test {
 protected:
  static KvCacheOptions Options() {
    KvCacheOptions options;
    options.num_blocks = 9;
    options.block_size = 4;
    return options;
  }

  static step::Request MakeRequest(int32_t num_tokens, int32_t first = 1) {
    step::Request request;
    request.id = step::RequestId(1);
    for (int32_t i = 0; i < num_tokens; ++i) request.prompt_token_ids.push_back(first + i);
    return request;
  }

  // A request comes and goes, and leaves its blocks in the cache.
  void Compute(const step::Request& request) {
    RequestBlocks blocks(request);
    const step::TokenSequence tokens(request.prompt_token_ids, {});
    std::vector<std::vector<BlockId>> added;
    ASSERT_TRUE(cache_.CanAllocate(blocks, nullptr, tokens.size()));
    ASSERT_TRUE(cache_.Allocate(tokens.size(), nullptr, &blocks, &added).ok());
    cache_.Commit(request, tokens, tokens.size(), &blocks);
    cache_.Free(&blocks);
  }

  int32_t NumCached(const step::Request& request) {
    RequestBlocks blocks(request);
    const int32_t one_more[] = {0};
    return cache_
        .FindPrefix(request, step::TokenSequence(request.prompt_token_ids, one_more), &blocks)
        .num_tokens;
  }

  void ExpectSound() {
    std::vector<const RequestBlocks*> holders;
    prefixes_.AppendHolders(&holders);
    EXPECT_EQ(cache_.CheckIntegrity(holders).ToString(), "OK");
  }

  KvCacheManager cache_{Options()};
  HeldPrefixes prefixes_{&cache_};
};

TEST_F(HeldPrefixesTest, WhatIsCachedIsHeldUntilItsEnd) {
  Compute(MakeRequest(10));
  auto held = prefixes_.HoldCached(MakeRequest(10));
  ASSERT_TRUE(held.ok()) << held.status().ToString();
  EXPECT_EQ(held->first_token, 0);
  EXPECT_EQ(held->end_token, 8) << "full blocks";
  EXPECT_EQ(held->contents.size(), 2u);
  ExpectSound();
  EXPECT_EQ(cache_.num_free_blocks(), 6);
  EXPECT_FALSE(cache_.Reset()) << "blocks are held";
  EXPECT_EQ(prefixes_.End(held->id), 8);
  EXPECT_EQ(cache_.num_free_blocks(), 8);
  EXPECT_EQ(NumCached(MakeRequest(10)), 8);
  ExpectSound();
}

TEST_F(HeldPrefixesTest, TheLastTokenOfAWholeBlockCounts) {
  Compute(MakeRequest(8));
  auto held = prefixes_.HoldCached(MakeRequest(8));
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(held->end_token, 8);
  prefixes_.End(held->id);
}

TEST_F(HeldPrefixesTest, NothingCachedIsNotFound) {
  EXPECT_EQ(prefixes_.HoldCached(MakeRequest(10)).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(prefixes_.size(), 0u);
  ExpectSound();
}

TEST_F(HeldPrefixesTest, WhatIsWrittenIsFoundByRequests) {
  Compute(MakeRequest(5));
  auto held = prefixes_.HoldMissing(MakeRequest(14));
  ASSERT_TRUE(held.ok()) << held.status().ToString();
  EXPECT_EQ(held->first_token, 4);
  EXPECT_EQ(held->end_token, 12);
  ASSERT_EQ(held->contents.size(), 2u);
  EXPECT_EQ(NumCached(MakeRequest(14)), 4) << "not before its end";
  ExpectSound();
  EXPECT_EQ(prefixes_.End(held->id), 12);
  EXPECT_EQ(NumCached(MakeRequest(14)), 12);
  ExpectSound();
}

TEST_F(HeldPrefixesTest, WhatComesFromAMissingBlockOnIsNotFound) {
  auto held = prefixes_.HoldMissing(MakeRequest(14));
  ASSERT_TRUE(held.ok());
  ASSERT_EQ(held->contents.size(), 3u);
  EXPECT_EQ(prefixes_.End(held->id, held->contents[1].hash), 4);
  EXPECT_EQ(NumCached(MakeRequest(14)), 4);
  EXPECT_EQ(cache_.num_free_blocks(), 8);
  ExpectSound();
}

TEST_F(HeldPrefixesTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(prefixes_.HoldMissing(MakeRequest(40)).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(prefixes_.HoldMissing(MakeRequest(3)).status().code(), StatusCode::kInvalidArgument);
  ExpectSound();
}

TEST_F(HeldPrefixesTest, AnUnknownIdEndsNothing) { EXPECT_EQ(prefixes_.End(HeldPrefixId(7)), 0); }

TEST_F(HeldPrefixesTest, RefusesGroupsWithSeveralPagesPerBlock) {
  KvCacheOptions options = Options();
  options.groups = {{.kind = "full", .pages_per_block = 2}};
  KvCacheManager cache(options);
  HeldPrefixes prefixes(&cache);
  EXPECT_EQ(prefixes.HoldCached(MakeRequest(8)).status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(prefixes.HoldMissing(MakeRequest(8)).status().code(), StatusCode::kUnimplemented);
}

// Attention in blocks of 4 tokens beside states at every second boundary.
TEST_F(HeldPrefixesTest, StatesAreSavedAtTheEnd) {
  KvCacheOptions options = Options();
  options.groups = {{.kind = "full"}, {.kind = "state_space", .block_size = 8}};
  KvCacheManager cache(options);
  HeldPrefixes prefixes(&cache);
  const auto written = prefixes.HoldMissing(MakeRequest(22));
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  EXPECT_EQ(written->end_token, 16) << "where a state can be";
  EXPECT_EQ(written->contents.size(), 4u + 1);
  EXPECT_EQ(prefixes.End(written->id), 16);
  const auto saved = prefixes.HoldCached(MakeRequest(22));
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  EXPECT_EQ(saved->end_token, 16);
  EXPECT_EQ(saved->contents.size(), 4u + 1);
  prefixes.End(saved->id);
  EXPECT_EQ(prefixes.HoldMissing(MakeRequest(7)).status().code(), StatusCode::kInvalidArgument);
  const auto damaged = prefixes.HoldMissing(MakeRequest(22, /*first=*/100));
  EXPECT_EQ(prefixes.End(damaged->id, damaged->contents[2].hash), 0) << "no state before that";
  EXPECT_EQ(cache.CheckIntegrity({}).ToString(), "OK");
}

TEST_F(HeldPrefixesTest, RefusesWithoutAPrefixCache) {
  KvCacheOptions options = Options();
  options.enable_prefix_caching = false;
  KvCacheManager cache(options);
  HeldPrefixes prefixes(&cache);
  EXPECT_EQ(prefixes.HoldCached(MakeRequest(8)).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(prefixes.HoldMissing(MakeRequest(8)).status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace pagemill::kv_cache
