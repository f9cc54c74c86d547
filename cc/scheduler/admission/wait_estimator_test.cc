#include "cc/scheduler/admission/wait_estimator.h"

#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

TEST(WaitEstimator, KnowsNothingBeforeTheFirstStep) {
  WaitEstimator estimator;
  estimator.ObserveOutput(10);
  estimator.ObserveStep(0, 1000);
  estimator.ObserveStep(10, 0);
  EXPECT_EQ(estimator.WaitMicros({.prompt_tokens = 5, .ends = 1}), std::nullopt);
  estimator.ObserveStep(100, 1000);
  EXPECT_EQ(estimator.WaitMicros({.prompt_tokens = 50, .ends = 0}), 500);
  EXPECT_EQ(estimator.WaitMicros({}), 0);
}

TEST(WaitEstimator, CountsTheOutputsThatMustCome) {
  WaitEstimator estimator;
  estimator.ObserveStep(1000, 10'000);
  EXPECT_EQ(estimator.WaitMicros({.prompt_tokens = 100, .ends = 7}), 1000);  // not known yet
  estimator.ObserveOutput(10);
  estimator.ObserveOutput(30);
  EXPECT_EQ(estimator.WaitMicros({.prompt_tokens = 100, .ends = 5}), 2000);
}

TEST(WaitEstimator, FollowsAChangeOfSpeedWithinAFewWindows) {
  WaitEstimator estimator;
  for (int i = 0; i < 1000; ++i) estimator.ObserveStep(100, 100'000);  // 1,000 tokens a second
  EXPECT_EQ(estimator.WaitMicros({.prompt_tokens = 1000}), 1'000'000);
  for (int i = 0; i < 400; ++i) estimator.ObserveStep(10, 100'000);  // 40 s at 100
  const int64_t slow = *estimator.WaitMicros({.prompt_tokens = 1000});
  EXPECT_GT(slow, 8'000'000);
  EXPECT_LE(slow, 10'000'000);
}

TEST(WaitEstimator, FollowsAChangeOfOutputLengths) {
  WaitEstimator estimator;
  estimator.ObserveStep(1, 1);
  for (int i = 0; i < 1000; ++i) estimator.ObserveOutput(1000);
  for (int i = 0; i < 300; ++i) estimator.ObserveOutput(10);
  EXPECT_LT(*estimator.WaitMicros({.ends = 1}), 100);
}

TEST(WaitEstimator, OneStuckStepIsForgotten) {
  WaitEstimator estimator;
  estimator.ObserveStep(100, int64_t{3600} * 1'000'000);
  EXPECT_GT(*estimator.WaitMicros({.prompt_tokens = 100}), 10'000'000);
  for (int i = 0; i < 600; ++i) estimator.ObserveStep(100, 100'000);
  EXPECT_LT(*estimator.WaitMicros({.prompt_tokens = 1000}), 1'100'000);
}

TEST(WaitEstimator, LargeNumbersDoNotOverflow) {
  WaitEstimator estimator;
  estimator.ObserveStep(1, 10'000'000);
  estimator.ObserveOutput(1'000'000);
  EXPECT_GT(*estimator.WaitMicros({.prompt_tokens = int64_t{1} << 40, .ends = 100'000}), 0);
}

}  // namespace
}  // namespace pagemill::scheduler
