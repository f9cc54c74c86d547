// Processes as ranks: each maps the segment for itself.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <vector>

#include "cc/comm/communicator.h"

namespace pagemill::comm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Rank `rank` of the segment as a process started with its descriptor would get it.
std::unique_ptr<Communicator> JoinByDescriptor(const SharedSegment& segment, int32_t rank) {
  auto opened = SharedSegment::Open(segment.fd());
  if (!opened.ok()) return nullptr;
  auto group = Communicator::Join(*opened, rank);
  if (!group.ok() || !(*group)->WaitForAll(milliseconds(60'000)).ok()) return nullptr;
  return *std::move(group);
}

// A child that is rank `rank`; it exits with what `body` returns.
pid_t StartRank(const SharedSegment& segment, int32_t rank,
                const std::function<int(Communicator&)>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  const std::unique_ptr<Communicator> group = JoinByDescriptor(segment, rank);
  _exit(group == nullptr ? 99 : body(*group));
}

int ExitStatus(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// Reductions of odd sizes whose results every rank knows; 0 where all are right.
int Reductions(Communicator& group) {
  for (size_t size : {1u, 63u, 64u, 577u, 5001u}) {
    std::vector<float> x(size);
    for (size_t i = 0; i < size; ++i) {
      x[i] = static_cast<float>(group.rank() + 1) * static_cast<float>(i);
    }
    if (!group.AllReduce(x, x).ok()) return 1;
    const auto factor = static_cast<float>(group.num_ranks() * (group.num_ranks() + 1) / 2);
    for (size_t i = 0; i < size; ++i) {
      if (x[i] != factor * static_cast<float>(i)) return 2;
    }
    float root = group.rank() == 0 ? 42.0f : 0.0f;
    if (!group.Broadcast(std::as_writable_bytes(std::span(&root, 1)), 0).ok()) return 3;
    if (root != 42.0f) return 4;
  }
  return 0;
}

TEST(CommunicatorProcessTest, RanksInProcessesReduceAndBroadcast) {
  for (int32_t ranks = 1; ranks <= 4; ++ranks) {
    const auto segment = *SharedSegment::Create({.num_ranks = ranks, .slot_bytes = 4096});
    std::vector<pid_t> children;
    for (int32_t r = 1; r < ranks; ++r) children.push_back(StartRank(*segment, r, Reductions));
    const std::unique_ptr<Communicator> group = JoinByDescriptor(*segment, 0);
    ASSERT_NE(group, nullptr);
    EXPECT_EQ(Reductions(*group), 0);
    for (pid_t child : children) EXPECT_EQ(ExitStatus(child), 0);
    group->CheckIntegrity();
  }
}

// Rank 0 waits for a rank that dies by `die`; the zombie is not collected before it notices.
void ExpectDeathNoticed(const std::function<int(Communicator&)>& die) {
  const auto segment = *SharedSegment::Create({.num_ranks = 2});
  const pid_t child = StartRank(*segment, 1, die);
  const std::unique_ptr<Communicator> group = JoinByDescriptor(*segment, 0);
  ASSERT_NE(group, nullptr);
  std::vector<float> x(10, 1.0f);
  ASSERT_TRUE(group->AllReduce(x, x).ok());
  const Clock::time_point start = Clock::now();
  const Status status = group->AllReduce(x, x);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            "rank 1 of 2 (process " + std::to_string(child) + ") has died or left the group");
  ExitStatus(child);
}

TEST(CommunicatorProcessTest, AWaitingRankNoticesThatAPeerWasKilled) {
  ExpectDeathNoticed([](Communicator& group) {
    std::vector<float> x(10, 1.0f);
    if (!group.AllReduce(x, x).ok()) return 1;
    std::raise(SIGKILL);
    return 0;
  });
}

TEST(CommunicatorProcessTest, AWaitingRankNoticesThatAPeerExited) {
  ExpectDeathNoticed([](Communicator& group) {
    std::vector<float> x(10, 1.0f);
    return group.AllReduce(x, x).ok() ? 0 : 1;  // _exit runs no destructor: it does not leave
  });
}

TEST(CommunicatorProcessTest, AWorkerEndsWhenRankZeroDies) {
  const auto segment = *SharedSegment::Create({.num_ranks = 2});
  const pid_t worker = StartRank(*segment, 1, [](Communicator& group) {
    float x = 0;  // waits for a step that never comes
    const Status status = group.Broadcast(std::as_writable_bytes(std::span(&x, 1)), 0);
    return status.code() == StatusCode::kUnavailable ? 7 : 8;
  });
  const pid_t zero = StartRank(*segment, 0, [](Communicator&) {
    std::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(ExitStatus(worker), 7);
  EXPECT_EQ(ExitStatus(zero), -SIGKILL);
}

}  // namespace
}  // namespace pagemill::comm
