#include "cc/device/machine_limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace pagemill::device {
namespace {

constexpr double kSeconds = 0.005;

TEST(Peaks, EveryPresentOneRunsOnOneThreadAndOnTwo) {
  const Capabilities caps = DetectCapabilities();
  for (const Peak& peak : PresentPeaks(caps)) {
    for (const int threads : {1, 2}) {
      ThreadPool pool({.num_threads = threads});
      const StatusOr<double> rate = MeasurePeak(caps, peak, pool, kSeconds);
      ASSERT_TRUE(rate.ok()) << rate.status().message();
      EXPECT_GT(*rate, 1e6) << peak.isa << ' ' << peak.format << ' ' << peak.operands;
    }
  }
}

TEST(Peaks, ALesserMachineHasFewer) {
  const std::vector<Peak> least = PresentPeaks(Capabilities());
  ASSERT_EQ(least.size(), 1u);
  EXPECT_EQ(least[0], (Peak{"portable", "f32", "registers"}));
  ThreadPool pool({.num_threads = 1});
  for (const Peak& peak : {Peak{"amx_bf16", "bf16", "L1"}, Peak{"amx_int8", "int8", "L2"},
                           Peak{"asimd_i8mm", "int8", "registers"}, Peak{"abacus", "f32", "L1"}}) {
    const StatusOr<double> rate = MeasurePeak(Capabilities(), peak, pool, kSeconds);
    ASSERT_FALSE(rate.ok());
    EXPECT_EQ(rate.status().code(), StatusCode::kNotFound);
    EXPECT_NE(rate.status().message().find(peak.isa), std::string::npos);
  }
}

// AMX peaks are measured from both caches, only on CPUs with AMX.
TEST(Peaks, TilesGoWithTheCapability) {
  Capabilities caps;
  caps.cpu.amx_bf16 = true;
  std::map<std::string, int> found;
  for (const Peak& peak : PresentPeaks(caps)) ++found[peak.isa];
#if defined(__x86_64__)
  EXPECT_EQ(found, (std::map<std::string, int>{{"portable", 1}, {"amx_bf16", 2}}));
#else
  EXPECT_EQ(found, (std::map<std::string, int>{{"portable", 1}}));
#endif
}

TEST(Peaks, FlopsAreThoseOfF32) {
  ThreadPool pool({.num_threads = 1});
  EXPECT_GT(MeasureFlops(Capabilities(), pool), 1e6);
}

TEST(ReadBandwidth, AnySizeAndThreadCount) {
  const Capabilities caps = DetectCapabilities();
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool({.num_threads = threads});
    for (const int64_t bytes : {64, 65, 4097, 1 << 20, (8 << 20) + 13}) {
      const auto rate = MeasureReadBandwidth(caps, {.bytes = bytes, .seconds = kSeconds}, pool);
      ASSERT_TRUE(rate.ok()) << bytes;
      EXPECT_GT(*rate, 1e5) << bytes;
    }
  }
}

TEST(ReadBandwidth, RefusesWhatCannotBe) {
  ThreadPool pool({.num_threads = 1});
  const Capabilities caps;
  EXPECT_EQ(MeasureReadBandwidth(caps, {.bytes = 63}, pool).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(MeasureReadBandwidth(caps, {.bytes = int64_t{1} << 60}, pool).status().code(),
            StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace pagemill::device
