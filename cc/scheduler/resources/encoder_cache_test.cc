#include "cc/scheduler/resources/encoder_cache.h"

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

using Held = EncoderCache::Held;

// Items of the given (content, first token, size).
step::Request MakeRequest(std::vector<step::MediaItem> media) {
  step::Request request;
  request.prompt_token_ids = std::vector<int32_t>(100, 1);
  request.media = std::move(media);
  return request;
}

std::vector<int32_t> Take(EncoderCache* cache, const step::Request& request, int32_t begin,
                          int32_t end, Held* held) {
  std::vector<int32_t> encoded;
  cache->Take(request, begin, end, held, &encoded);
  return encoded;
}

std::vector<std::string> Released(EncoderCache* cache) {
  std::vector<std::string> released;
  cache->TakeReleased(&released);
  return released;
}

TEST(EncoderCache, TokensAreCutToBeforeAnItemThatExceedsTheBudget) {
  EncoderCache cache({.max_encoder_tokens = 15, .encoder_cache_tokens = 100});
  const step::Request request = MakeRequest({{"a", 5, 10}, {"b", 20, 10}});
  Held held;
  cache.StartStep();
  EXPECT_EQ(cache.Fit(request, held, {0, 4, 100}), 4);
  EXPECT_EQ(cache.Fit(request, held, {0, 12, 100}), 12) << "a chunk may end inside an item";
  EXPECT_EQ(cache.Fit(request, held, {0, 50, 100}), 20);
  EXPECT_EQ(Take(&cache, request, 0, 20, &held), std::vector<int32_t>{0});
  EXPECT_EQ(cache.Fit(request, held, {20, 30, 100}), 0) << "5 are left, 10 are needed";
  cache.StartStep();
  EXPECT_EQ(cache.Fit(request, held, {20, 30, 100}), 30);
}

TEST(EncoderCache, AnItemIsEncodedOnceAndHeldUntilItsTokensAreComputed) {
  EncoderCache cache({.max_encoder_tokens = 20, .encoder_cache_tokens = 20});
  const step::Request request = MakeRequest({{"a", 0, 10}});
  Held held;
  cache.StartStep();
  EXPECT_EQ(Take(&cache, request, 0, 4, &held), std::vector<int32_t>{0});
  EXPECT_TRUE(Take(&cache, request, 4, 8, &held).empty());
  EXPECT_EQ(cache.num_queries(), 1u) << "what is held is not looked up";
  EXPECT_EQ(cache.num_hits(), 0u);
  cache.Advance(request, 9, &held);
  EXPECT_EQ(cache.num_referenced_tokens(), 10);
  cache.Advance(request, 10, &held);
  EXPECT_EQ(cache.num_referenced_tokens(), 0);
  EXPECT_EQ(cache.num_used_tokens(), 10) << "it stays for others";
  Held other;
  EXPECT_TRUE(Take(&cache, request, 0, 4, &other).empty());
  EXPECT_EQ(cache.num_queries(), 2u);
  EXPECT_EQ(cache.num_hits(), 1u);
  cache.Release(request, &other, true);
  EXPECT_TRUE(Released(&cache).empty());
}

TEST(EncoderCache, UnreferencedItemsAreEvictedFirstInFirstOutWhenRoomIsNeeded) {
  EncoderCache cache({.max_encoder_tokens = 100, .encoder_cache_tokens = 30});
  std::vector<step::Request> requests;
  for (const char* id : {"a", "b", "c"}) requests.push_back(MakeRequest({{id, 0, 10}}));
  Held held[3];
  cache.StartStep();
  for (int i = 0; i < 3; ++i) Take(&cache, requests[i], 0, 10, &held[i]);
  const step::Request large = MakeRequest({{"d", 5, 15}});
  Held none;
  EXPECT_EQ(cache.Fit(large, none, {0, 20, 100}), 5) << "all are needed";
  for (int i : {1, 0}) cache.Advance(requests[i], 10, &held[i]);
  EXPECT_TRUE(Released(&cache).empty());
  EXPECT_EQ(cache.Fit(large, none, {0, 20, 100}), 20);
  EXPECT_EQ(Take(&cache, large, 0, 20, &none), std::vector<int32_t>{0});
  EXPECT_EQ(Released(&cache), (std::vector<std::string>{"b", "a"}));
}

TEST(EncoderCache, MakingRoomDoesNotEvictWhatTheSameTokensNeed) {
  EncoderCache cache({.max_encoder_tokens = 100, .encoder_cache_tokens = 20});
  const step::Request first = MakeRequest({{"a", 0, 10}}), second = MakeRequest({{"b", 0, 5}});
  Held held;
  cache.StartStep();
  Take(&cache, first, 0, 10, &held);
  cache.Advance(first, 10, &held);
  Take(&cache, second, 0, 5, &held);
  cache.Advance(second, 5, &held);
  const step::Request both = MakeRequest({{"c", 0, 10}, {"a", 10, 10}});
  EXPECT_EQ(cache.Fit(both, held, {0, 20, 100}), 20);
  EXPECT_EQ(Take(&cache, both, 0, 20, &held), std::vector<int32_t>{0});
  EXPECT_EQ(Released(&cache), std::vector<std::string>{"b"});
}

TEST(EncoderCache, TheSameContentTwiceIsEncodedOnce) {
  EncoderCache cache({.max_encoder_tokens = 10, .encoder_cache_tokens = 10});
  const step::Request request = MakeRequest({{"a", 0, 10}, {"a", 15, 10}});
  Held held;
  cache.StartStep();
  EXPECT_EQ(cache.Fit(request, held, {0, 40, 100}), 40);
  EXPECT_EQ(Take(&cache, request, 0, 40, &held), std::vector<int32_t>{0});
  cache.Advance(request, 10, &held);
  EXPECT_EQ(held, std::vector<int32_t>{1});
  EXPECT_EQ(cache.num_referenced_tokens(), 10);
}

TEST(EncoderCache, WithoutChunkedInputAChunkIsRolledBackToBeforeAnItem) {
  EncoderCache cache(
      {.max_encoder_tokens = 30, .encoder_cache_tokens = 30, .chunked_media_input = false});
  const step::Request request = MakeRequest({{"a", 5, 10}, {"b", 15, 10}});
  const Held held;
  cache.StartStep();
  EXPECT_EQ(cache.Fit(request, held, {0, 12, 100}), 5);
  EXPECT_EQ(cache.Fit(request, held, {0, 15, 100}), 15);
  EXPECT_EQ(cache.Fit(request, held, {0, 24, 100}), 15);
  // Nothing is left to roll back: the item runs whole, if the step has room for it.
  EXPECT_EQ(cache.Fit(request, held, {5, 4, 100}), 10);
  EXPECT_EQ(cache.Fit(request, held, {5, 4, 9}), 0);
  EXPECT_EQ(cache.Fit(request, held, {8, 2, 7}), 7) << "behind a cached prefix that ends in it";
}

TEST(EncoderCache, AClosedStepGivesNobodyAFurtherItem) {
  EncoderCache cache({.max_encoder_tokens = 20, .encoder_cache_tokens = 20});
  const step::Request request = MakeRequest({{"a", 2, 10}});
  Held held, other;
  cache.StartStep();
  Take(&cache, request, 0, 5, &held);
  cache.Close();
  EXPECT_EQ(cache.Fit(request, held, {5, 10, 100}), 10) << "what is held goes on";
  EXPECT_EQ(cache.Fit(request, other, {0, 10, 100}), 2);
  cache.StartStep();
  EXPECT_EQ(cache.Fit(request, other, {0, 10, 100}), 10);
}

TEST(EncoderCache, WhatMayNeverHaveBeenEncodedIsNotUsedAgain) {
  EncoderCache cache({.max_encoder_tokens = 100, .encoder_cache_tokens = 100});
  const step::Request request = MakeRequest({{"a", 0, 10}});
  Held failed, other;
  cache.StartStep();
  Take(&cache, request, 0, 10, &failed);
  Take(&cache, request, 0, 10, &other);
  cache.Release(request, &failed, /*usable=*/false);
  EXPECT_EQ(cache.Fit(request, {}, {0, 10, 100}), 0) << "a request still holds the doubtful one";
  EXPECT_TRUE(Released(&cache).empty());
  cache.Release(request, &other, true);
  EXPECT_EQ(Released(&cache), std::vector<std::string>{"a"});
  EXPECT_EQ(cache.Fit(request, {}, {0, 10, 100}), 10);
  EXPECT_EQ(cache.num_used_tokens(), 0);
}

TEST(EncoderCache, OnRequestAllItemsWithoutReferencesAreDropped) {
  EncoderCache cache({.max_encoder_tokens = 20, .encoder_cache_tokens = 20});
  const step::Request done = MakeRequest({{"a", 0, 10}});
  const step::Request runs = MakeRequest({{"b", 0, 10}});
  Held held_by_done, held_by_runs;
  cache.StartStep();
  Take(&cache, done, 0, 10, &held_by_done);
  Take(&cache, runs, 0, 5, &held_by_runs);
  cache.Advance(done, 10, &held_by_done);
  cache.EvictUnreferenced();
  EXPECT_EQ(Released(&cache), std::vector<std::string>{"a"});
  EXPECT_EQ(cache.num_used_tokens(), 10);
  cache.StartStep();
  EXPECT_EQ(Take(&cache, done, 0, 10, &held_by_done), std::vector<int32_t>{0}) << "encoded again";
}

TEST(EncoderCache, WhatNoGoodStepNeededYetIsNotUsedAgain) {
  EncoderCache cache({.max_encoder_tokens = 100, .encoder_cache_tokens = 100});
  const step::Request request = MakeRequest({{"a", 0, 10}, {"b", 10, 10}});
  Held held;
  cache.StartStep();
  Take(&cache, request, 0, 15, &held);
  cache.Advance(request, 5, &held);
  cache.Release(request, &held, /*usable=*/true);
  EXPECT_EQ(Released(&cache), std::vector<std::string>{"b"});
  EXPECT_EQ(cache.num_used_tokens(), 10);
}

// Random requests against a list of what the runner holds: nothing runs without its items, budget
// and capacity are kept, and every request gets through.
TEST(EncoderCache, RandomUseKeepsBudgetAndCapacityAndGetsEverybodyThrough) {
  std::mt19937 random(17);
  const auto pick = [&random](int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random() % static_cast<uint32_t>(high - low + 1));
  };
  struct Running {
    step::Request request;
    Held held;
    int32_t done = 0;
  };
  for (const bool chunked : {true, false}) {
    EncoderCache cache(
        {.max_encoder_tokens = 12, .encoder_cache_tokens = 16, .chunked_media_input = chunked});
    std::vector<Running> running(4);
    std::map<std::string, int32_t> outputs;  // on the runner
    int num_ended = 0;
    for (int step = 0; step < 5000; ++step) {
      cache.StartStep();
      int32_t encoded = 0;
      std::vector<std::pair<Running*, int32_t>> ran;
      std::vector<std::pair<std::string, int32_t>> made;
      for (Running& r : running) {
        if (r.request.media.empty()) {
          r = {};
          for (int32_t at = pick(0, 9); at < 60; at += pick(0, 9)) {
            const int32_t content = pick(0, 9);
            r.request.media.push_back({"m" + std::to_string(content), at, 3 + content});
            at += 3 + content;
          }
        }
        const int32_t n = cache.Fit(r.request, r.held, {r.done, pick(1, 20), 20});
        if (n == 0) continue;
        std::vector<int32_t> media;
        cache.Take(r.request, r.done, r.done + n, &r.held, &media);
        for (int32_t i : media) {
          made.emplace_back(r.request.media[i].content_id, r.request.media[i].num_tokens);
          encoded += r.request.media[i].num_tokens;
        }
        ran.emplace_back(&r, n);
      }
      ASSERT_LE(encoded, 12);
      for (const std::string& id : Released(&cache)) ASSERT_EQ(outputs.erase(id), 1u) << id;
      for (const auto& [id, size] : made) ASSERT_TRUE(outputs.emplace(id, size).second) << id;
      int32_t kept = 0;
      for (const auto& [id, size] : outputs) kept += size;
      ASSERT_EQ(kept, cache.num_used_tokens());
      ASSERT_LE(kept, 16);
      ASSERT_FALSE(ran.empty()) << "no request can go on";
      for (const auto& [r, n] : ran) {
        for (const step::MediaItem& item : r->request.media) {
          const int32_t end = item.first_token + item.num_tokens;
          const bool inside = item.first_token < r->done + n && end > r->done;
          ASSERT_TRUE(!inside || outputs.contains(item.content_id));
          const bool cut = item.first_token < r->done + n && end > r->done + n;
          ASSERT_TRUE(chunked || !cut);
        }
        r->done += n;
        cache.Advance(r->request, r->done, &r->held);
        if (r->done < 70 && pick(0, 19) > 0) continue;
        num_ended += r->done >= 70;
        cache.Release(r->request, &r->held, true);
        r->request.media = {};
      }
      std::vector<EncoderCache::Holder> holders;
      for (const Running& r : running) {
        if (!r.request.media.empty()) holders.push_back({&r.request, &r.held});
      }
      const Status status = cache.CheckIntegrity(holders);
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
    EXPECT_GT(num_ended, 100);
  }
}

}  // namespace
}  // namespace pagemill::scheduler
