#include "cc/base/duration_histogram.h"

#include <limits>
#include <numeric>

#include "gtest/gtest.h"

namespace pagemill {
namespace {

TEST(DurationHistogram, ABoundBelongsToTheBucketThatItEnds) {
  EXPECT_EQ(DurationHistogram::BucketOf(0), 0u);
  EXPECT_EQ(DurationHistogram::BucketOf(0.001), 0u);
  EXPECT_EQ(DurationHistogram::BucketOf(0.0011), 1u);
  EXPECT_EQ(DurationHistogram::BucketOf(1800), 20u);
  EXPECT_EQ(DurationHistogram::BucketOf(1801), 21u);
  EXPECT_EQ(DurationHistogram::BucketOf(std::numeric_limits<double>::max()), 21u);
}

TEST(DurationHistogram, CountsAndSumsAfterAClear) {
  DurationHistogram histogram;
  EXPECT_TRUE(histogram.counts.empty()) << "nothing is measured";
  histogram.Clear();
  for (double seconds : {0.5, 0.5, 4000.0}) histogram.Add(seconds);
  EXPECT_EQ(histogram.counts[DurationHistogram::BucketOf(0.5)], 2u);
  EXPECT_EQ(histogram.counts.back(), 1u);
  EXPECT_EQ(std::accumulate(histogram.counts.begin(), histogram.counts.end(), uint64_t{0}), 3u);
  EXPECT_EQ(histogram.sum_s, 4001);
  histogram.Clear();
  EXPECT_EQ(histogram.counts.back(), 0u);
  EXPECT_EQ(histogram.sum_s, 0);
}

}  // namespace
}  // namespace pagemill
