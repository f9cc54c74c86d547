#include "cc/router/router.h"

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "cc/kv_cache/block_hash.h"
#include "gtest/gtest.h"

namespace pagemill::router {
namespace {

constexpr int32_t kBlock = 4;

step::Request Prompt(int32_t first, int32_t count) {
  step::Request request;
  std::vector<int32_t> token_ids(static_cast<size_t>(count));
  std::iota(token_ids.begin(), token_ids.end(), first);
  request.prompt_token_ids = std::move(token_ids);
  return request;
}

std::unique_ptr<Router> Make(int32_t num_engines) {
  return *Router::Create(
      {.policy = "prefix_aware", .num_engines = num_engines, .block_size = kBlock});
}

// The event with which an engine reports the blocks of `request`.
kv_cache::KvEvent Stored(const step::Request& request) {
  kv_cache::KvEvent event;
  event.block_size = kBlock;
  kv_cache::BlockHasher hasher(kv_cache::HashAlgorithm::kXxh3_128);
  const step::TokenSequence tokens(request.prompt_token_ids, {});
  kv_cache::BlockHash parent;
  for (int32_t end = kBlock; end <= tokens.size(); end += kBlock) {
    const int32_t begin = end - kBlock;
    parent = hasher.Hash(parent, kv_cache::ExtraKeys(request, begin, end), tokens, begin, end);
    event.hashes.push_back(parent);
  }
  return event;
}

TEST(Router, AConversationReturnsToTheEngineThatItWasSentTo) {
  auto router = Make(4);
  const int32_t first = *router->Route(Prompt(0, 20));
  const int32_t second = *router->Route(Prompt(5000, 20));
  EXPECT_NE(first, second);
  for (int32_t engine : {first, second}) router->Finish(engine);
  EXPECT_EQ(router->stats().num_prefix_hits, 0);
  EXPECT_EQ(router->Route(Prompt(0, 40)), first);
  EXPECT_EQ(router->Route(Prompt(5000, 12)), second);
  EXPECT_EQ(router->stats().num_routed, 4);
  EXPECT_EQ(router->stats().num_prefix_hits, 2);
  EXPECT_EQ(router->stats().prefix_tokens, 20 + 12);
}

TEST(Router, RequestsThatOthersSentAreLoad) {
  auto router = Make(2);
  router->AddRequests(0, 2);
  for (int32_t i = 0; i < 2; ++i) EXPECT_EQ(router->Route(Prompt(i * 5000, 20)), 1);
  router->AddRequests(0, -3);
  EXPECT_EQ(router->load(0).num_requests, 0);
  EXPECT_EQ(router->Route(Prompt(20000, 20)), 0);
}

TEST(Router, EventsSayWhatEnginesHave) {
  auto router = Make(3);
  router->Observe(2, Stored(Prompt(0, 40)));
  EXPECT_EQ(router->Route(Prompt(0, 44)), 2);
  router->Finish(2);

  kv_cache::KvEvent removed = Stored(Prompt(0, 44));
  removed.type = kv_cache::KvEvent::Type::kRemoved;
  router->Observe(2, removed);
  router->Observe(1, Stored(Prompt(0, 8)));
  EXPECT_EQ(router->Route(Prompt(0, 44)), 1);
  router->Finish(1);

  kv_cache::KvEvent cleared;
  cleared.type = kv_cache::KvEvent::Type::kCleared;
  router->Observe(1, cleared);
  router->Observe(0, Stored(Prompt(0, 4)));
  EXPECT_EQ(router->Route(Prompt(0, 44)), 0);
}

TEST(Router, EventsThatNameNoBlocksOfTheRouterAreIgnored) {
  auto router = Make(2);
  kv_cache::KvEvent event = Stored(Prompt(0, 40));
  event.block_size = 2 * kBlock;
  router->Observe(1, event);
  event = Stored(Prompt(0, 40));
  event.group = kv_cache::GroupId(1);
  router->Observe(1, event);
  event = Stored(Prompt(0, 40));
  event.medium = "disk";
  router->Observe(1, event);
  EXPECT_EQ(router->Route(Prompt(0, 40)), 0);
}

TEST(Router, EqualTokensUnderOtherSaltsAreOtherPrefixes) {
  auto router = Make(2);
  step::Request salted = Prompt(0, 40);
  salted.cache_salt = "a";
  router->Observe(1, Stored(salted));
  EXPECT_EQ(router->Route(Prompt(0, 40)), 0);
  EXPECT_EQ(router->Route(salted), 1);
}

TEST(Router, AnEngineThatIsNotAvailableGetsNothing) {
  auto router = Make(2);
  router->Observe(1, Stored(Prompt(0, 40)));
  router->SetAvailable(1, false);
  EXPECT_EQ(router->Route(Prompt(0, 40)), 0);
  router->SetAvailable(0, false);
  EXPECT_EQ(router->Route(Prompt(0, 40)), std::nullopt);
  router->SetAvailable(1, true);
  EXPECT_EQ(router->Route(Prompt(0, 40)), 1);
  router->Forget(1);
  router->SetAvailable(0, true);
  router->Finish(0);
  EXPECT_EQ(router->load(0).num_requests, 0);
  EXPECT_EQ(router->Route(Prompt(0, 40)), 0);  // it was sent the prompt before
}

TEST(Router, RefusesOptionsThatMakeNoSense) {
  EXPECT_FALSE(Router::Create({.policy = "nearest"}).ok());
  EXPECT_FALSE(Router::Create({.num_engines = 0}).ok());
  EXPECT_FALSE(Router::Create({.block_size = 0}).ok());
  EXPECT_FALSE(Router::Create({.max_prefix_blocks = -1}).ok());
}

}  // namespace
}  // namespace pagemill::router
