#include "cc/device/run_delay.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace pagemill::device {
namespace {

// A fake /proc in which thread 7 of this process has these scheduling statistics.
std::string MakeProc(const std::string& schedstat) {
  const std::string root = testing::TempDir() + "/run_delay_" +
                           testing::UnitTest::GetInstance()->current_test_info()->name();
  std::filesystem::create_directories(root + "/self/task/7");
  std::ofstream(root + "/self/task/7/schedstat") << schedstat;
  return root;
}

TEST(RunDelayTest, ReadsTheSecondNumberAnewEachTime) {
  const std::string root = MakeProc("15423 8765432109 12\n");
  const RunDelay delay(7, root.c_str());
  EXPECT_EQ(delay.TotalNs(), 8765432109);
  MakeProc("15999 8765432200 13\n");
  EXPECT_EQ(delay.TotalNs(), 8765432200);
}

TEST(RunDelayTest, ASystemThatDoesNotTellIsNoNumber) {
  EXPECT_EQ(RunDelay(7, "/nowhere").TotalNs(), std::nullopt);
  EXPECT_EQ(RunDelay(8, MakeProc("1 2 3\n").c_str()).TotalNs(), std::nullopt) << "no such thread";
}

TEST(RunDelayTest, OtherTextIsNoNumber) {
  for (const char* text : {"", "15423", "15423 ", "15423 x 12\n"}) {
    EXPECT_EQ(RunDelay(7, MakeProc(text).c_str()).TotalNs(), std::nullopt) << text;
  }
}

TEST(RunDelayTest, ThisThreadsNeverShrinks) {
  const RunDelay delay(static_cast<pid_t>(::syscall(SYS_gettid)));
  const std::optional<int64_t> before = delay.TotalNs();
  if (!before) GTEST_SKIP() << "this kernel does not count it";
  EXPECT_GE(*before, 0);
  EXPECT_GE(delay.TotalNs(), before);
}

}  // namespace
}  // namespace pagemill::device
