#include "cc/base/clock.h"

#include <string>
#include <vector>

#include "cc/base/log_sink.h"
#include "gtest/gtest.h"

namespace pagemill {
namespace {

TEST(SteadyClock, DoesNotGoBack) {
  SteadyClock clock;
  int64_t last = clock.NowNanos();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = clock.NowNanos();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(FakeClock, MovesOnlyWhenTold) {
  FakeClock clock;
  const int64_t start = clock.NowNanos();
  EXPECT_EQ(clock.NowNanos(), start);
  clock.AdvanceNanos(1'500'000'000);
  EXPECT_DOUBLE_EQ(SecondsBetween(start, clock.NowNanos()), 1.5);
}

TEST(LogSink, ReceivesLinesAndMayBeEmpty) {
  std::vector<std::string> lines;
  LogSink sink = [&lines](LogSeverity severity, std::string_view line) {
    if (severity == LogSeverity::kWarning) lines.emplace_back(line);
  };
  Log(sink, LogSeverity::kWarning, "kept");
  Log(sink, LogSeverity::kDebug, "of another severity");
  Log(LogSink(), LogSeverity::kWarning, "dropped");
  EXPECT_EQ(lines, std::vector<std::string>{"kept"});
}

}  // namespace
}  // namespace pagemill
