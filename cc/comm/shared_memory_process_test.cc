// Processes as ranks: each maps the segment for itself.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <vector>

#include "cc/comm/group_conformance.h"
#include "cc/comm/shared_memory_world.h"

namespace pagemill::comm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Joins as rank `rank` of the segment, as a process that inherits its descriptor would.
std::shared_ptr<SharedMemoryWorld> JoinByDescriptor(const SharedSegment& segment, int32_t rank) {
  auto opened = SharedSegment::Open(segment.fd());
  if (!opened.ok()) return nullptr;
  auto world = SharedMemoryWorld::Join(*opened, rank);
  if (!world.ok() || !(*world)->WaitForAll(milliseconds(60'000)).ok()) return nullptr;
  return *std::move(world);
}

// Starts a child as rank `rank`; it exits with the result of `body`.
pid_t StartRank(const SharedSegment& segment, int32_t rank,
                const std::function<int(const Groups&)>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  const std::shared_ptr<SharedMemoryWorld> world = JoinByDescriptor(segment, rank);
  _exit(world == nullptr ? 99 : body(world->groups()));
}

int ExitStatus(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

Status Meet(const Groups& groups) {
  std::vector<float> x(10, 1.0f);
  return groups.at(Axis::kTensor)->AllReduce(DType::kF32, x.data(), x.data(), 10);
}

// Makes calls of every kind along every axis with several ranks; 0 if all results are right.
int CallEverything(const Groups& groups) {
  for (uint32_t round = 0; round < 2; ++round) {
    for (Axis axis : kAxes) {
      if (groups.at(axis) != nullptr) conformance::CheckCollectives(*groups.at(axis), round, 60);
    }
  }
  // No process ends before all have arrived: the others would consider it dead.
  float nothing = 0;
  const Status met = groups.at(Axis::kExpert)->AllReduce(DType::kF32, &nothing, &nothing, 1);
  return ::testing::Test::HasFailure() || !met.ok() ? 1 : 0;
}

TEST(SharedMemoryProcessTest, RanksInProcessesMakeEveryCall) {
  for (const Topology topology : {Topology{.tensor = 2}, {.tensor = 4}, {.data = 2, .tensor = 2}}) {
    const auto segment = *SharedSegment::Create({.topology = topology, .slot_bytes = 256});
    std::vector<pid_t> children;
    for (int32_t r = 1; r < topology.num_ranks(); ++r) {
      children.push_back(StartRank(*segment, r, CallEverything));
    }
    const std::shared_ptr<SharedMemoryWorld> world = JoinByDescriptor(*segment, 0);
    ASSERT_NE(world, nullptr);
    EXPECT_EQ(CallEverything(world->groups()), 0);
    world->CheckIntegrity();
    for (pid_t child : children) EXPECT_EQ(ExitStatus(child), 0);
  }
}

// Rank 0 waits for a rank that dies by `die`; the zombie is not collected before it notices.
void ExpectDeathNoticed(const std::function<int(const Groups&)>& die) {
  const auto segment = *SharedSegment::Create({.topology = {.tensor = 2}});
  const pid_t child = StartRank(*segment, 1, die);
  const std::shared_ptr<SharedMemoryWorld> world = JoinByDescriptor(*segment, 0);
  ASSERT_NE(world, nullptr);
  ASSERT_TRUE(Meet(world->groups()).ok());
  const Clock::time_point start = Clock::now();
  std::byte data[1];
  const Status status = world->groups().at(Axis::kTensor)->Receive(data, 1);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            "rank 1 of 2 (process " + std::to_string(child) + ") has died or left the group");
  EXPECT_EQ(Meet(world->groups()), status);
  ExitStatus(child);
}

TEST(SharedMemoryProcessTest, AWaitingRankNoticesThatAPeerWasKilled) {
  ExpectDeathNoticed([](const Groups& groups) {
    if (!Meet(groups).ok()) return 1;
    std::raise(SIGKILL);
    return 0;
  });
}

TEST(SharedMemoryProcessTest, AWaitingRankNoticesThatAPeerExited) {
  ExpectDeathNoticed([](const Groups& groups) {
    return Meet(groups).ok() ? 0 : 1;  // _exit runs no destructor: it does not leave
  });
}

TEST(SharedMemoryProcessTest, AWorkerEndsWhenRankZeroDies) {
  const auto segment = *SharedSegment::Create({.topology = {.tensor = 2}});
  const pid_t worker = StartRank(*segment, 1, [](const Groups& groups) {
    std::byte x[1];  // waits for a step that never comes
    const Status status = groups.at(Axis::kTensor)->Broadcast(x, 0);
    return status.code() == StatusCode::kUnavailable ? 7 : 8;
  });
  const pid_t zero = StartRank(*segment, 0, [](const Groups&) {
    std::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(ExitStatus(worker), 7);
  EXPECT_EQ(ExitStatus(zero), -SIGKILL);
}

}  // namespace
}  // namespace pagemill::comm
