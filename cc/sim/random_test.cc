#include "cc/sim/random.h"

#include <algorithm>
#include <cmath>

#include "cc/sim/fixed_point.h"
#include "gtest/gtest.h"

namespace pagemill::sim {
namespace {

constexpr int kDraws = 20000;

TEST(Random, BelowStaysBelowAndReachesEverything) {
  Random random(1, 0);
  int counts[7] = {};
  for (int i = 0; i < kDraws; ++i) ++counts[random.Below(7)];
  for (int count : counts) EXPECT_NEAR(count, kDraws / 7, 250);  // some 5 deviations
}

TEST(Random, ExponentialHasItsMeanAndMedian) {
  Random random(2, 0);
  double sum = 0;
  int below = 0;
  for (int i = 0; i < kDraws; ++i) {
    const int64_t x = random.Exponential(1000000);
    ASSERT_GE(x, 0);
    sum += static_cast<double>(x);
    below += x < 693147;
  }
  EXPECT_NEAR(sum / kDraws, 1e6, 4e4);
  EXPECT_NEAR(below, kDraws / 2, 400);
}

TEST(Random, NormalHasItsMomentsAndTails) {
  Random random(3, 0);
  double sum = 0, squares = 0;
  int beyond_two = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = static_cast<double>(random.Normal()) / static_cast<double>(kOne);
    sum += x;
    squares += x * x;
    beyond_two += std::abs(x) > 2;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.04);
  EXPECT_NEAR(squares / kDraws, 1, 0.06);
  EXPECT_NEAR(beyond_two, 0.0455 * kDraws, 150);
}

TEST(Random, StreamsDiffer) {
  Random first(5, 0), second(5, 1);
  EXPECT_NE(first.Next(), second.Next());
}

TEST(Random, GivesTheSameNumbersEverywhere) {
  Random random(42, 7);
  uint64_t sum = 0;
  for (int i = 0; i < 1000; ++i) {
    sum = Mix(sum ^ random.Next());
    sum = Mix(sum ^ static_cast<uint64_t>(random.Exponential(123456789)));
    sum = Mix(sum ^ static_cast<uint64_t>(random.Normal()));
  }
  EXPECT_EQ(sum, 16931087674350079183u);
}

}  // namespace
}  // namespace pagemill::sim
