#include "cc/sim/routing/routing.h"

#include <numeric>
#include <vector>

#include "cc/sim/routing/prefix_aware.h"
#include "gtest/gtest.h"

namespace pagemill::sim {
namespace {

std::vector<int32_t> Tokens(int32_t first, size_t count) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(Routing, RoundRobinTakesTurns) {
  auto policy = *MakeRoutingPolicy("round_robin", 3);
  const std::vector<int32_t> loads = {9, 0, 0};
  for (int32_t expected : {0, 1, 2, 0, 1}) EXPECT_EQ(policy->Route({}, loads), expected);
}

TEST(Routing, LeastLoadedTakesTheIdlestAndTurnsAmongEquals) {
  auto policy = *MakeRoutingPolicy("least_loaded", 4);
  EXPECT_EQ(policy->Route({}, std::vector<int32_t>{3, 1, 2, 1}), 1);
  EXPECT_EQ(policy->Route({}, std::vector<int32_t>{3, 1, 2, 1}), 3);
  EXPECT_EQ(policy->Route({}, std::vector<int32_t>{3, 1, 2, 1}), 1);
  EXPECT_EQ(policy->Route({}, std::vector<int32_t>{0, 1, 2, 1}), 0);
}

TEST(Routing, PrefixAwareReturnsToTheEngineThatHasTheLongestPrefix) {
  auto policy = *MakeRoutingPolicy("prefix_aware", 4);
  const std::vector<int32_t> idle(4, 0);
  const int32_t first = policy->Route(Tokens(0, 200), idle);
  const int32_t second = policy->Route(Tokens(5000, 200), idle);
  EXPECT_NE(first, second);
  EXPECT_EQ(policy->Route(Tokens(0, 400), idle), first);
  EXPECT_EQ(policy->Route(Tokens(5000, 128), idle), second);
  EXPECT_NE(policy->Route(Tokens(9000, 400), idle), second);
}

TEST(Routing, PrefixAwareLeavesABusyEngineAlone) {
  auto policy = *MakeRoutingPolicy("prefix_aware", 2);
  const int32_t first = policy->Route(Tokens(0, 200), std::vector<int32_t>{0, 0});
  std::vector<int32_t> loads(2, 0);
  loads[first] = PrefixAware::kSlack;
  EXPECT_EQ(policy->Route(Tokens(0, 200), loads), first);
  loads[first] = PrefixAware::kSlack + 1;
  EXPECT_NE(policy->Route(Tokens(0, 200), loads), first);
  // The prefix is on the engine that received it last.
  EXPECT_NE(policy->Route(Tokens(0, 200), std::vector<int32_t>{0, 0}), first);
}

TEST(Routing, AnUnknownPolicyIsRefusedWithTheKnownOnes) {
  const auto policy = MakeRoutingPolicy("random", 2);
  EXPECT_EQ(policy.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(policy.status().message().find("least_loaded, prefix_aware, round_robin"),
            std::string::npos);
}

}  // namespace
}  // namespace pagemill::sim
