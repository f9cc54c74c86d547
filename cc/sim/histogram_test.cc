#include "cc/sim/histogram.h"

#include <algorithm>
#include <vector>

#include "cc/sim/random.h"
#include "gtest/gtest.h"

namespace pagemill::sim {
namespace {

TEST(Histogram, IsZeroWhileEmpty) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.mean(), 0);
  EXPECT_EQ(histogram.min(), 0);
  EXPECT_EQ(histogram.max(), 0);
  EXPECT_EQ(histogram.Quantile(500), 0);
  EXPECT_TRUE(histogram.NonEmpty().empty());
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram histogram;
  for (int64_t v = 0; v < 10; ++v) histogram.Add(v);
  EXPECT_EQ(histogram.Quantile(500), 4);
  EXPECT_EQ(histogram.Quantile(1000), 9);
  EXPECT_EQ(histogram.Quantile(0), 0);
  EXPECT_EQ(histogram.mean(), 4);
}

TEST(Histogram, BucketsTouchAndHoldTheirValues) {
  for (int64_t value : {int64_t{0}, int64_t{63}, int64_t{64}, int64_t{127}, int64_t{128},
                        int64_t{129}, int64_t{1000000007}, INT64_MAX / 2, INT64_MAX - 1}) {
    Histogram histogram;
    histogram.Add(value, 3);
    const std::vector<Histogram::Bucket> buckets = histogram.NonEmpty();
    ASSERT_EQ(buckets.size(), 1u) << value;
    EXPECT_LE(buckets[0].low, value);
    EXPECT_GT(buckets[0].high, value);
    EXPECT_EQ(buckets[0].count, 3u);
    EXPECT_EQ(histogram.Quantile(500), value);  // clamped to [min, max]
  }
}

TEST(Histogram, QuantilesAreWithinTheStatedErrorOfExactOnes) {
  Random random(1, 0);
  Histogram histogram;
  std::vector<int64_t> values;
  for (int i = 0; i < 30000; ++i) {
    values.push_back(random.Exponential(50000000));
    histogram.Add(values.back());
  }
  std::sort(values.begin(), values.end());
  for (int permille : {10, 500, 900, 990, 999}) {
    const auto exact = static_cast<double>(values[values.size() * permille / 1000 - 1]);
    EXPECT_NEAR(static_cast<double>(histogram.Quantile(permille)), exact, 0.008 * exact);
  }
  EXPECT_EQ(histogram.max(), values.back());
  EXPECT_EQ(histogram.min(), values.front());
}

}  // namespace
}  // namespace pagemill::sim
