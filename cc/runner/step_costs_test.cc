#include "cc/runner/step_costs.h"

#include <gtest/gtest.h>

#include <random>

namespace pagemill::runner {
namespace {

TEST(StepCostsTest, ATokenCostsATenthOfAStepUntilStepsShowOtherwise) {
  StepCosts costs;
  EXPECT_NEAR(costs.Of(2) / costs.Of(1), 1.1, 1e-9);
  costs.Observe(1, 0.02);
  EXPECT_NEAR(costs.Of(1), 0.02, 1e-12);
  EXPECT_NEAR(costs.Of(4), 0.026, 1e-12);
  costs.Observe(5, 0.022);
  EXPECT_NEAR(costs.Of(5), 0.022, 1e-12);
  EXPECT_NEAR(costs.Of(3), 0.021, 1e-12);
}

TEST(StepCostsTest, FollowsFasterStepsAndForgetsDisturbances) {
  StepCosts costs;
  costs.Observe(1, 0.5);  // memory was touched for the first time
  for (int i = 0; i < 20; ++i) costs.Observe(1, 0.01);
  EXPECT_LT(costs.Of(1), 0.012);
  costs.Observe(1, 0.02);
  EXPECT_LT(costs.Of(1), 0.0125);
  for (int i = 0; i < 100; ++i) costs.Observe(1, 0.02);
  EXPECT_GT(costs.Of(1), 0.0195);
}

TEST(StepCostsTest, NoStepCostsMoreThanALargerOne) {
  std::mt19937 rng(5);
  for (int round = 0; round < 100; ++round) {
    StepCosts costs;
    for (int i = 0; i < 30; ++i) {
      const auto tokens = static_cast<int32_t>(1 + rng() % (round < 50 ? 20 : 3000));
      costs.Observe(tokens, 0.001 * (1 + rng() % 1000));
    }
    for (int32_t n = 1; n < 4000; ++n) {
      ASSERT_GT(costs.Of(n), 0.0);
      ASSERT_LE(costs.Of(n), costs.Of(n + 1) * (1 + 1e-12)) << n;
    }
  }
}

TEST(StepCostsTest, ASlowFirstStepDoesNotSpeakForItsSize) {
  StepCosts costs;
  costs.Observe(3, 0.100);  // all weights came from the disk
  for (int i = 0; i < 3; ++i) costs.Observe(2, 0.010);
  EXPECT_NEAR(costs.Of(3), 0.010 * 12 / 11, 1e-9);
  costs.Observe(3, 0.013);
  costs.Observe(3, 0.012);
  EXPECT_DOUBLE_EQ(costs.Of(3), 0.012);
}

}  // namespace
}  // namespace pagemill::runner
