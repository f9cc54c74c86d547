#include "cc/device/attendance.h"

#include <gtest/gtest.h>

#include <random>

namespace pagemill::device {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSlice = 4 * kMs;

// Makes thread 1 of 2 wait for its core for two time slices, so that it leaves at `now_ns`.
void Drive(Attendance& attendance, int64_t now_ns) {
  attendance.Waited(1, kSlice, now_ns - 8 * kMs);
  ASSERT_TRUE(attendance.Attends(1));
  attendance.Waited(1, kSlice, now_ns);
  ASSERT_FALSE(attendance.Attends(1));
}

// The time from `left_ns` until the next probe of thread 1 is due.
int64_t ProbeDueAfter(const Attendance& attendance, int64_t left_ns) {
  for (int64_t ns = 0; ns <= 2 * Attendance::kLongestAbsenceNs; ns += kMs) {
    if (attendance.IsProbeDue(1, left_ns + ns)) return ns;
  }
  return -1;
}

TEST(AttendanceTest, AllTakePartAtFirst) {
  const Attendance attendance(3);
  for (int32_t thread = 0; thread < 3; ++thread) EXPECT_TRUE(attendance.Attends(thread));
  EXPECT_EQ(attendance.num_absent(), 0);
}

TEST(AttendanceTest, AThreadThatLosesTwoTurnsInARowStaysAway) {
  Attendance attendance(3);
  attendance.Waited(1, kSlice, 100 * kMs);
  EXPECT_TRUE(attendance.Attends(1));
  attendance.Waited(1, kSlice, 108 * kMs);
  EXPECT_FALSE(attendance.Attends(1));
  EXPECT_TRUE(attendance.Attends(2)) << "thread 2 never waited for its core";
  EXPECT_EQ(attendance.num_absent(), 1);
}

TEST(AttendanceTest, OneLongWaitIsEnough) {
  Attendance attendance(2);
  attendance.Waited(1, 8 * kMs, 100 * kMs);
  EXPECT_FALSE(attendance.Attends(1));
}

// An occasionally lost slice costs less than a core: with two threads up to a third of the time,
// with seven up to an eighth.
TEST(AttendanceTest, RareWaitsAreForgiven) {
  for (int32_t threads : {2, 7}) {
    Attendance rarely(threads), often(threads);
    for (int64_t turn = 1; turn <= 1000; ++turn) {
      rarely.Waited(1, kSlice, turn * kSlice * (threads + 1));
      ASSERT_TRUE(rarely.Attends(1)) << threads << " threads, turn " << turn;
    }
    for (int64_t turn = 1; turn <= 10; ++turn) {
      if (often.Attends(1)) often.Waited(1, kSlice, turn * kSlice * threads);
    }
    EXPECT_FALSE(often.Attends(1)) << threads << " threads";
  }
}

TEST(AttendanceTest, ShortWaitsDoNotCount) {
  Attendance attendance(2);
  for (int64_t turn = 1; turn <= 1000; ++turn) {
    attendance.Waited(1, Attendance::kLeastWaitNs - 1, turn * kMs);
    ASSERT_TRUE(attendance.Attends(1)) << turn;
  }
}

TEST(AttendanceTest, AProbeThatFindsACoreBringsTheThreadBack) {
  Attendance attendance(2);
  Drive(attendance, 100 * kMs);
  EXPECT_EQ(ProbeDueAfter(attendance, 100 * kMs), 10 * kMs);
  attendance.BeginProbe(1);
  EXPECT_TRUE(attendance.IsProbing(1));
  EXPECT_FALSE(attendance.Attends(1)) << "while it probes";
  EXPECT_FALSE(attendance.IsProbeDue(1, 200 * kMs)) << "one at a time";
  attendance.EndProbe(1, Attendance::kLeastWaitNs - 1, 118 * kMs);
  EXPECT_TRUE(attendance.Attends(1));
  EXPECT_EQ(attendance.num_absent(), 0);
}

TEST(AttendanceTest, ProbesThatFindNoCoreGetRarer) {
  Attendance attendance(2);
  int64_t now_ns = 100 * kMs;
  Drive(attendance, now_ns);
  for (int64_t expected_ms : {10, 20, 40, 80, 160, 320, 640, 640, 640}) {
    const int64_t due_ns = ProbeDueAfter(attendance, now_ns);
    EXPECT_EQ(due_ns, expected_ms * kMs);
    now_ns += due_ns;
    attendance.BeginProbe(1);
    now_ns += 8 * kMs;
    attendance.EndProbe(1, kSlice, now_ns);
    EXPECT_FALSE(attendance.Attends(1));
    ASSERT_TRUE(attendance.CheckIntegrity().ok());
  }
}

TEST(AttendanceTest, WhoLeavesSoonAgainStaysAwayForLonger) {
  Attendance attendance(2);
  Drive(attendance, 100 * kMs);
  attendance.BeginProbe(1);
  attendance.EndProbe(1, 0, 110 * kMs);
  Drive(attendance, 150 * kMs);
  EXPECT_EQ(ProbeDueAfter(attendance, 150 * kMs), 20 * kMs);
  attendance.BeginProbe(1);
  attendance.EndProbe(1, 0, 170 * kMs);
  Drive(attendance, 500 * kMs);
  EXPECT_EQ(ProbeDueAfter(attendance, 500 * kMs), 10 * kMs) << "long after it came back";
}

// The caller cannot pause; another thread pauses instead.
TEST(AttendanceTest, TheLastOtherThreadLeavesIfTheCallerWaits) {
  Attendance attendance(3);
  attendance.Waited(0, 8 * kMs, 100 * kMs);
  EXPECT_TRUE(attendance.Attends(0));
  EXPECT_TRUE(attendance.Attends(1));
  EXPECT_FALSE(attendance.Attends(2));
  attendance.Waited(0, 8 * kMs, 108 * kMs);
  EXPECT_FALSE(attendance.Attends(1));
  attendance.Waited(0, 8 * kMs, 116 * kMs);
  EXPECT_TRUE(attendance.Attends(0)) << "a single thread";
  EXPECT_EQ(attendance.num_absent(), 2);
}

TEST(AttendanceTest, StaysConsistentWhateverHappens) {
  std::mt19937_64 random(1);
  const auto up_to = [&random](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1));
  };
  Attendance attendance(4);
  int64_t now_ns = 0;
  int left = 0, returned = 0;
  for (int step = 0; step < 20000; ++step) {
    now_ns += up_to(10 * kMs);
    const auto thread = static_cast<int32_t>(up_to(3));
    const int32_t absent_before = attendance.num_absent();
    if (attendance.Attends(thread)) {
      attendance.Waited(thread, up_to(3 * kMs), now_ns);
    } else if (attendance.IsProbing(thread)) {
      attendance.EndProbe(thread, up_to(kMs), now_ns);
    } else if (attendance.IsProbeDue(thread, now_ns)) {
      attendance.BeginProbe(thread);
    }
    left += attendance.num_absent() > absent_before ? 1 : 0;
    returned += attendance.num_absent() < absent_before ? 1 : 0;
    const Status status = attendance.CheckIntegrity();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  EXPECT_GT(left, 10);
  EXPECT_GT(returned, 10);
}

}  // namespace
}  // namespace pagemill::device
