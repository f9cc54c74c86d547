#include "cc/base/timeline.h"

#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"

namespace pagemill {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(TimelineTest, WritesWhatWasRecorded) {
  FakeClock clock;
  clock.AdvanceNanos(5'000);
  Timeline timeline({}, &clock);
  const auto execute = timeline.AddLabel(Timeline::Track::kSteps, "execute");
  const auto linear =
      timeline.AddLabel(Timeline::Track::kModel, "linear", {{"matrix", "q4\"[8,\\4]\n"}});
  const int64_t begin = timeline.Now();
  clock.AdvanceNanos(1'234'567);
  timeline.Add(linear, begin);
  timeline.Add(execute, begin, {.requests = 3, .tokens = 40});
  EXPECT_EQ(timeline.num_events(), 2);
  const std::string path = testing::TempDir() + "/timeline.json";
  ASSERT_TRUE(timeline.WriteChromeTrace(path).ok());
  const std::string json = Read(path);
  EXPECT_NE(json.find(R"({"ph":"X","pid":1,"tid":2,"ts":0.000,"dur":1234.567,"name":"linear",)"
                      R"("args":{"matrix":"q4\"[8,\\4] "}})"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"({"ph":"X","pid":1,"tid":1,"ts":0.000,"dur":1234.567,"name":"execute",)"
                      R"("args":{"requests":3,"tokens":40}})"),
            std::string::npos)
      << json;
}

TEST(TimelineTest, StopsAtEachBound) {
  FakeClock clock;
  Timeline few({.max_events = 2}, &clock);
  const auto label = few.AddLabel(Timeline::Track::kSteps, "plan");
  for (int i = 0; i < 5; ++i) few.Add(label, 0);
  EXPECT_TRUE(few.full());
  EXPECT_EQ(few.num_events(), 2);

  Timeline steps({.max_steps = 1}, &clock);
  steps.CountStep();
  steps.Add(steps.AddLabel(Timeline::Track::kSteps, "plan"), 0);
  EXPECT_FALSE(steps.full());
  steps.CountStep();
  steps.Add(label, 0);
  EXPECT_TRUE(steps.full());
  EXPECT_EQ(steps.num_events(), 1);

  Timeline seconds({.max_seconds = 1}, &clock);
  clock.AdvanceNanos(1'000'000'001);
  seconds.Add(seconds.AddLabel(Timeline::Track::kSteps, "plan"), 0);
  EXPECT_TRUE(seconds.full());
}

TEST(TimelineTest, RefusesWhatMakesNoSense) {
  EXPECT_FALSE(TimelineOptions{.max_events = 0}.Validate().ok());
  EXPECT_FALSE(TimelineOptions{.max_steps = -1}.Validate().ok());
  EXPECT_FALSE(TimelineOptions{.max_seconds = 4000}.Validate().ok());
  FakeClock clock;
  const Status status = Timeline({.max_events = 1}, &clock).WriteChromeTrace("/nowhere/a.json");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("/nowhere/a.json"), std::string::npos);
}

}  // namespace
}  // namespace pagemill
