#include "cc/comm/process_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace pagemill::comm {
namespace {

TEST(ProcessWatchTest, AProcessThatRunsHasNotEndedAndAZombieHas) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  ProcessWatch watch(child);
  EXPECT_FALSE(watch.HasEnded());
  kill(child, SIGKILL);
  siginfo_t info = {};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(watch.HasEnded());
  ProcessWatch late(child);
  EXPECT_TRUE(late.HasEnded());
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(watch.HasEnded());
  ProcessWatch too_late(child);
  EXPECT_TRUE(too_late.HasEnded());
}

}  // namespace
}  // namespace pagemill::comm
