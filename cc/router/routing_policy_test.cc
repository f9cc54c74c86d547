#include "cc/router/routing_policy.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::router {
namespace {

std::vector<EngineLoad> Loads(std::vector<int32_t> requests) {
  std::vector<EngineLoad> loads;
  for (int32_t count : requests) loads.push_back({.num_requests = count});
  return loads;
}

// Worth as many requests as a prefix can be.
constexpr int32_t kLongPrefix = kBusyRequests * kTokensPerRequest;

TEST(RoutingPolicy, RoundRobinTakesTurns) {
  auto policy = *MakeRoutingPolicy("round_robin");
  std::vector<EngineLoad> loads = Loads({9, 0, 0});
  for (int32_t expected : {0, 1, 2, 0, 1}) EXPECT_EQ(policy->Route({.engines = loads}), expected);
  loads[2].available = false;
  for (int32_t expected : {0, 1, 0}) EXPECT_EQ(policy->Route({.engines = loads}), expected);
}

TEST(RoutingPolicy, LeastLoadedTakesTheIdlestAndTurnsAmongEquals) {
  auto policy = *MakeRoutingPolicy("least_loaded");
  const std::vector<EngineLoad> loads = Loads({3, 1, 2, 1});
  for (int32_t expected : {1, 3, 1}) EXPECT_EQ(policy->Route({.engines = loads}), expected);
  EXPECT_EQ(policy->Route({.engines = Loads({0, 1, 2, 1})}), 0);
}

TEST(RoutingPolicy, PrefixAwareTakesTheIdlestHolder) {
  auto policy = *MakeRoutingPolicy("prefix_aware");
  EXPECT_TRUE(policy->uses_prefixes());
  const std::vector<int32_t> holders = {2, 1};
  const auto route = [&](std::vector<int32_t> requests) {
    return policy->Route(
        {.engines = Loads(requests), .prefix_holders = holders, .prefix_tokens = kLongPrefix});
  };
  EXPECT_EQ(route({0, 3, 4}), 1);
  EXPECT_EQ(route({0, 4, 3}), 2);
  EXPECT_EQ(policy->Route({.engines = Loads({0, 4, 3})}), 0);
}

TEST(RoutingPolicy, PrefixAwareLeavesABusyEngineAlone) {
  auto policy = *MakeRoutingPolicy("prefix_aware");
  const std::vector<int32_t> holders = {0};
  const auto route = [&](std::vector<int32_t> requests, int32_t prefix_tokens) {
    return policy->Route(
        {.engines = Loads(requests), .prefix_holders = holders, .prefix_tokens = prefix_tokens});
  };
  EXPECT_EQ(route({kBusyRequests, 0}, 2 * kLongPrefix), 0);
  EXPECT_EQ(route({kBusyRequests + 1, 0}, 2 * kLongPrefix), 1);
  EXPECT_EQ(route({30, 20}, kLongPrefix), 0);
  EXPECT_EQ(route({31, 20}, kLongPrefix), 1);
}

TEST(RoutingPolicy, AShortPrefixIsWorthFewRequests) {
  auto policy = *MakeRoutingPolicy("prefix_aware");
  const std::vector<int32_t> holders = {0};
  const auto route = [&](std::vector<int32_t> requests, int32_t prefix_tokens) {
    return policy->Route(
        {.engines = Loads(requests), .prefix_holders = holders, .prefix_tokens = prefix_tokens});
  };
  EXPECT_EQ(route({0, 0}, 16), 0);
  EXPECT_EQ(route({1, 0}, 16), 1);
  EXPECT_EQ(route({1, 0}, kTokensPerRequest), 0);
  EXPECT_EQ(route({2, 0}, kTokensPerRequest), 1);
  EXPECT_EQ(route({3, 2}, 16), 0);
}

TEST(RoutingPolicy, SessionsStayAndOnlyThoseOfALostEngineMove) {
  auto policy = *MakeRoutingPolicy("session");
  std::vector<EngineLoad> loads = Loads({0, 0, 0, 0});
  std::set<int32_t> used;
  std::vector<int32_t> before;
  for (int i = 0; i < 64; ++i) {
    const std::string session = "user " + std::to_string(i);
    before.push_back(*policy->Route({.engines = loads, .session = session}));
    used.insert(before.back());
    EXPECT_EQ(policy->Route({.engines = Loads({9, 9, 9, 9}), .session = session}), before.back());
  }
  EXPECT_EQ(used.size(), 4);
  loads[1].available = false;
  for (int i = 0; i < 64; ++i) {
    const std::string session = "user " + std::to_string(i);
    const int32_t after = *policy->Route({.engines = loads, .session = session});
    EXPECT_NE(after, 1);
    if (before[i] != 1) {
      EXPECT_EQ(after, before[i]);
    }
  }
  EXPECT_EQ(policy->Route({.engines = Loads({2, 1, 2})}), 1);  // no session: the least loaded
}

TEST(RoutingPolicy, NoneIsChosenIfNoneIsAvailable) {
  std::vector<EngineLoad> loads = Loads({0, 0});
  for (EngineLoad& load : loads) load.available = false;
  for (const char* name : {"least_loaded", "prefix_aware", "round_robin", "session"}) {
    auto policy = *MakeRoutingPolicy(name);
    EXPECT_EQ(policy->Route({.engines = loads, .session = "a"}), std::nullopt) << name;
  }
}

TEST(RoutingPolicy, AnUnknownPolicyIsRefusedWithTheKnownOnes) {
  const auto policy = MakeRoutingPolicy("random");
  EXPECT_EQ(policy.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(policy.status().message().find("least_loaded, prefix_aware, round_robin, session"),
            std::string::npos);
}

}  // namespace
}  // namespace pagemill::router
