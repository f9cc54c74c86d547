#include "cc/sim/arrival_process.h"

#include "gtest/gtest.h"

namespace pagemill::sim {
namespace {

constexpr int kDraws = 20000;

ArrivalOptions Options(const std::string& process) {
  ArrivalOptions options;
  options.process = process;
  options.mean_gap_ns = 1000000;
  return options;
}

struct Gaps {
  double mean;
  int zeros;
};

Gaps Measure(const std::string& process) {
  Random random(1, 0);
  const ArrivalProcess arrivals(Options(process));
  Gaps gaps{0, 0};
  for (int i = 0; i < kDraws; ++i) {
    const int64_t gap = arrivals.NextGap(&random);
    gaps.mean += static_cast<double>(gap) / kDraws;
    gaps.zeros += gap == 0;
  }
  return gaps;
}

TEST(ArrivalProcess, AllHaveTheSameRate) {
  EXPECT_EQ(Measure("constant").mean, 1e6);
  EXPECT_NEAR(Measure("poisson").mean, 1e6, 4e4);
  EXPECT_NEAR(Measure("bursty").mean, 1e6, 1e5);
}

TEST(ArrivalProcess, BurstsArriveAtOnce) {
  EXPECT_LT(Measure("poisson").zeros, 10);
  EXPECT_NEAR(Measure("bursty").zeros, kDraws * 9 / 10, 300);
}

TEST(ArrivalOptions, RefusalsNameTheField) {
  EXPECT_NE(Options("gamma").Validate().message().find("bursty, constant, poisson"),
            std::string::npos);
  ArrivalOptions options = Options("bursty");
  options.mean_burst = 0;
  EXPECT_NE(options.Validate().message().find("arrivals.mean_burst is 0"), std::string::npos);
  options = Options("poisson");
  options.mean_gap_ns = 0;
  EXPECT_NE(options.Validate().message().find("arrivals.mean_gap_ns is 0"), std::string::npos);
}

}  // namespace
}  // namespace pagemill::sim
