#include "cc/scheduler/policies/policies.h"

#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

TEST(Policies, AreFoundByName) {
  EXPECT_FALSE((*MakePolicy("fcfs"))->uses_priority());
  EXPECT_TRUE((*MakePolicy("priority"))->uses_priority());
  EXPECT_TRUE((*MakePolicy("fair", {{"a", 1}, {"b", kMaxTenantWeight}}))->charges());
}

TEST(Policies, AnUnknownNameListsTheKnownOnes) {
  const Status status = MakePolicy("lottery").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "scheduling policy \"lottery\" is not one of fair, fcfs, priority");
}

TEST(Policies, AWeightOutOfRangeIsRefused) {
  for (int32_t weight : {0, -1, kMaxTenantWeight + 1}) {
    const Status status = MakePolicy("fair", {{"a", 3}, {"b", weight}}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "the weight of tenant \"b\" is " + std::to_string(weight) +
                                    ", it must be from 1 to 1000 (--tenant-weights)");
  }
}

TEST(Policies, WeightsThatThePolicyIgnoresAreRefused) {
  for (const char* policy : {"fcfs", "priority"}) {
    const Status status = MakePolicy(policy, {{"a", 3}}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("--scheduling-policy fair"), std::string::npos);
  }
}

}  // namespace
}  // namespace pagemill::scheduler
