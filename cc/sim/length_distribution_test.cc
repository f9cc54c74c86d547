#include "cc/sim/length_distribution.h"

#include <cmath>

#include "gtest/gtest.h"

namespace pagemill::sim {
namespace {

constexpr int kDraws = 20000;

LengthOptions Options(const std::string& distribution, int32_t mean, int32_t spread) {
  LengthOptions options;
  options.distribution = distribution;
  options.mean_tokens = mean;
  options.spread_permille = spread;
  return options;
}

TEST(LengthDistribution, FixedIsTheMean) {
  Random random(1, 0);
  EXPECT_EQ(LengthDistribution(Options("fixed", 123, 900)).Draw(&random), 123);
}

TEST(LengthDistribution, UniformReachesBothEndsAndNoFurther) {
  Random random(1, 0);
  const LengthDistribution lengths(Options("uniform", 100, 500));
  int32_t low = 1000, high = 0;
  for (int i = 0; i < kDraws; ++i) {
    const int32_t n = lengths.Draw(&random);
    low = std::min(low, n);
    high = std::max(high, n);
  }
  EXPECT_EQ(low, 50);
  EXPECT_EQ(high, 150);
}

TEST(LengthDistribution, LognormalHasItsMeanAndMedian) {
  Random random(1, 0);
  const LengthDistribution lengths(Options("lognormal", 1000, 800));
  double sum = 0;
  int below = 0;
  for (int i = 0; i < kDraws; ++i) {
    const int32_t n = lengths.Draw(&random);
    sum += n;
    below += n < 1000 * std::exp(-0.32);
  }
  EXPECT_NEAR(sum / kDraws, 1000, 40);
  EXPECT_NEAR(below, kDraws / 2, 400);
}

TEST(LengthDistribution, DrawsStayWithinBounds) {
  Random random(1, 0);
  LengthOptions options = Options("lognormal", 2, 3000);
  options.max_tokens = 5;
  const LengthDistribution lengths(options);
  for (int i = 0; i < kDraws; ++i) {
    const int32_t n = lengths.Draw(&random);
    ASSERT_GE(n, 1);
    ASSERT_LE(n, 5);
  }
}

TEST(LengthOptions, RefusalsNameTheField) {
  EXPECT_NE(Options("normal", 1, 0).Validate("prompt").message().find("fixed, lognormal, uniform"),
            std::string::npos);
  EXPECT_NE(Options("fixed", 0, 0).Validate("prompt").message().find("prompt.mean_tokens is 0"),
            std::string::npos);
  EXPECT_FALSE(Options("uniform", 10, 1001).Validate("prompt").ok());
  EXPECT_TRUE(Options("lognormal", 10, 1001).Validate("prompt").ok());
}

}  // namespace
}  // namespace pagemill::sim
