#include "cc/sim/time_series.h"

#include "gtest/gtest.h"

namespace pagemill::sim {
namespace {

constexpr int64_t kMs = 1000000;

TEST(TimeSeries, CountsIntoTheIntervalOfTheMoment) {
  TimeSeries series;
  series.At(0).num_finished += 1;
  series.At(kMs - 1).num_finished += 1;
  series.At(3 * kMs).num_finished += 1;
  ASSERT_EQ(series.points().size(), 4u);
  EXPECT_EQ(series.points()[0].num_finished, 2u);
  EXPECT_EQ(series.points()[3].num_finished, 1u);
}

TEST(TimeSeries, IntegratesGaugesAcrossIntervals) {
  TimeSeries series;
  series.Advance(kMs / 2, {});
  series.Advance(3 * kMs, {4, 3, 2, 1});
  EXPECT_TRUE(series.points()[0].waiting_ns == Uint128{2 * kMs});
  EXPECT_TRUE(series.points()[1].waiting_ns == Uint128{4 * kMs});
  EXPECT_TRUE(series.points()[2].running_ns == Uint128{3 * kMs});
  EXPECT_TRUE(series.points()[2].kv_blocks_ns == Uint128{2 * kMs});
  EXPECT_TRUE(series.points()[2].busy_ns == Uint128{kMs});
  EXPECT_EQ(series.end_ns(), 3 * kMs);
}

TEST(TimeSeries, LosesNothingWhenItsIntervalsGrow) {
  TimeSeries series;
  uint64_t count = 0;
  for (int64_t now = 0; now < 5000 * kMs; now += 3 * kMs) {
    series.Advance(now, {2, 0, 0, 0});
    series.At(now).num_arrived += 1;
    ++count;
  }
  EXPECT_LE(series.points().size(), TimeSeries::kNumPoints);
  EXPECT_EQ(series.width_ns(), 32 * kMs);
  uint64_t arrived = 0;
  Uint128 waiting = 0;
  for (const TimeSeries::Point& point : series.points()) {
    arrived += point.num_arrived;
    waiting += point.waiting_ns;
  }
  EXPECT_EQ(arrived, count);
  EXPECT_TRUE(waiting == Uint128{2} * static_cast<uint64_t>(series.end_ns()));
}

}  // namespace
}  // namespace pagemill::sim
