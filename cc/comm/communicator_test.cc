// Threads as ranks: one mapping, so that a thread sanitizer sees every access. Processes as ranks:
// communicator_process_test.cc.
#include "cc/comm/communicator.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace pagemill::comm {
namespace {

using std::chrono::milliseconds;

std::shared_ptr<SharedSegment> MakeSegment(int32_t num_ranks, int64_t slot_bytes = 256) {
  return *SharedSegment::Create({.num_ranks = num_ranks, .slot_bytes = slot_bytes});
}

// Runs `body` on one thread per rank.
void RunRanks(const std::shared_ptr<SharedSegment>& segment, int32_t spin_us,
              const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < segment->num_ranks(); ++r) {
    threads.emplace_back([&, r] {
      auto group = Communicator::Join(segment, r, {.spin_us = spin_us});
      ASSERT_TRUE(group.ok()) << group.status().ToString();
      ASSERT_TRUE((*group)->WaitForAll(milliseconds(60'000)).ok());
      body(**group);
      (*group)->CheckIntegrity();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// What rank r gives as element i of call `call`: of very different sizes, so that the order of a
// sum shows in its bits.
float Given(int32_t rank, int64_t call, int64_t i) {
  std::minstd_rand random(static_cast<uint32_t>(rank * 7919 + call * 104729 + i * 31 + 1));
  random.discard(2);
  const float mantissa = static_cast<float>(random() % 20001) / 10000.0f - 1.0f;
  return std::ldexp(mantissa, static_cast<int>(random() % 24) - 12);
}

std::vector<float> GivenVector(int32_t rank, int64_t call, int64_t size) {
  std::vector<float> values;
  for (int64_t i = 0; i < size; ++i) values.push_back(Given(rank, call, i));
  return values;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void CheckAllReduce(Communicator& group, int64_t call, int64_t size, bool in_place) {
  std::vector<float> expected = GivenVector(0, call, size);
  for (int32_t r = 1; r < group.num_ranks(); ++r) {
    for (int64_t i = 0; i < size; ++i) expected[static_cast<size_t>(i)] += Given(r, call, i);
  }
  std::vector<float> mine = GivenVector(group.rank(), call, size);
  std::vector<float> out(mine.size());
  ASSERT_TRUE(group.AllReduce(mine, in_place ? mine : out).ok()) << group.status().ToString();
  EXPECT_TRUE(SameBits(in_place ? mine : out, expected)) << "rank " << group.rank();
}

void CheckAllGather(Communicator& group, int64_t call, int64_t rows, int64_t width) {
  std::vector<int64_t> widths;  // from 0, so that one rank may give nothing
  std::vector<std::vector<float>> given;
  for (int32_t r = 0; r < group.num_ranks(); ++r) {
    widths.push_back(width + r);
    given.push_back(GivenVector(r, call, rows * widths.back()));
  }
  std::vector<float> expected;
  for (int64_t row = 0; row < rows; ++row) {
    for (size_t r = 0; r < widths.size(); ++r) {
      expected.insert(expected.end(), given[r].begin() + row * widths[r],
                      given[r].begin() + (row + 1) * widths[r]);
    }
  }
  std::vector<float> out(expected.size());
  const std::vector<float>& mine = given[static_cast<size_t>(group.rank())];
  ASSERT_TRUE(group.AllGather(mine.data(), out.data(), rows, widths).ok());
  EXPECT_TRUE(SameBits(out, expected)) << "rank " << group.rank();
}

void CheckBroadcast(Communicator& group, int64_t call, int64_t size, int32_t root) {
  const std::vector<float> expected = GivenVector(root, call, size);
  std::vector<float> data = GivenVector(group.rank(), call, size);
  ASSERT_TRUE(group.Broadcast(std::as_writable_bytes(std::span(data)), root).ok());
  EXPECT_TRUE(SameBits(data, expected)) << "rank " << group.rank();
}

// The same random calls on every rank; each rank dawdles at places of its own.
void RandomCalls(Communicator& group, uint32_t seed, int calls) {
  std::minstd_rand shared(seed);
  std::minstd_rand own(seed + 1 + static_cast<uint32_t>(group.rank()));
  for (int call = 0; call < calls && !::testing::Test::HasFailure(); ++call) {
    const auto size = static_cast<int64_t>(shared() % 200);
    if (own() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 300));
    switch (shared() % 3) {
      case 0:
        CheckAllReduce(group, call, size, shared() % 2 == 0);
        break;
      case 1:
        CheckAllGather(group, call, static_cast<int64_t>(shared() % 4), size / 3);
        break;
      default:
        CheckBroadcast(group, call, size, static_cast<int32_t>(shared()) % group.num_ranks());
    }
  }
}

class RandomCallsTest : public ::testing::TestWithParam<int32_t> {};

TEST_P(RandomCallsTest, EveryRankGetsTheBitsThatTheRankOrderGives) {
  for (const int32_t spin_us : {0, 50}) {
    RunRanks(MakeSegment(GetParam()), spin_us,
             [&](Communicator& group) { RandomCalls(group, 11, 150); });
  }
}

INSTANTIATE_TEST_SUITE_P(OneToFour, RandomCallsTest, ::testing::Values(1, 2, 3, 4));

TEST(CommunicatorTest, ABroadcastBetweenReductionsDoesNotOvertakeASlowReader) {
  RunRanks(MakeSegment(3, 16 << 10), 50, [](Communicator& group) {
    for (int call = 0; call < 60; call += 3) {
      CheckAllReduce(group, call, 4096, true);
      CheckBroadcast(group, call + 1, 3, 0);
      CheckAllReduce(group, call + 2, 4096, true);
    }
  });
}

TEST(CommunicatorTest, PieceNumbersWrapAround) {
  const std::shared_ptr<SharedSegment> segment = MakeSegment(2, 64);
  for (int32_t r = 0; r < 2; ++r) segment->state(r).begun.store(0xfffffff0u);
  RunRanks(segment, 0, [](Communicator& group) { RandomCalls(group, 5, 40); });
  EXPECT_LT(segment->state(0).begun.load(), 0xfffffff0u);
}

TEST(CommunicatorTest, AnEmptyCallMovesNothing) {
  RunRanks(MakeSegment(2), 0, [](Communicator& group) {
    EXPECT_TRUE(group.AllReduce({}, {}).ok());
    EXPECT_TRUE(group.Broadcast({}, 0).ok());
    const int64_t widths[] = {3, 4};
    EXPECT_TRUE(group.AllGather(nullptr, nullptr, 0, widths).ok());
    CheckAllReduce(group, 1, 5, false);
  });
}

TEST(CommunicatorTest, AWaitingRankSleeps) {
  double busy_s = -1;
  RunRanks(MakeSegment(2), 100, [&](Communicator& group) {
    if (group.rank() == 0) {
      std::this_thread::sleep_for(milliseconds(400));
      CheckBroadcast(group, 0, 4, 0);
      return;
    }
    CheckBroadcast(group, 0, 4, 0);
    rusage usage = {};
    getrusage(RUSAGE_THREAD, &usage);
    busy_s = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
             1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  });
  // 20 looks at its peers; spinning would take most of 400 ms.
  EXPECT_GE(busy_s, 0);
  EXPECT_LT(busy_s, 0.2);
}

TEST(CommunicatorTest, ASleepingRankIsWokenAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  RunRanks(MakeSegment(2), 0, [](Communicator& group) {
    for (int call = 0; call < 100; ++call) {
      if (group.rank() == call % 2) std::this_thread::sleep_for(milliseconds(1));
      CheckBroadcast(group, call, 4, call % 2);
    }
  });
  // Sleepers that only look around every 20 ms would take 2 s.
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(1200));
}

TEST(CommunicatorTest, ARankThatLeavesEndsTheGroup) {
  RunRanks(MakeSegment(3), 10, [](Communicator& group) {
    CheckAllReduce(group, 0, 7, true);
    if (group.rank() == 1) return group.Leave();
    std::vector<float> x(7);
    const Status status = group.AllReduce(x, x);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
    EXPECT_EQ(group.AllReduce(x, x), status) << "the error repeats";
    EXPECT_EQ(group.Broadcast({}, 0), status);
  });
}

TEST(CommunicatorTest, AResultThatIsCompleteIsNotLostWhenAPeerLeaves) {
  for (int round = 0; round < 20; ++round) {
    RunRanks(MakeSegment(2), 0,
             [&](Communicator& group) { CheckAllReduce(group, round, 50, true); });
  }
}

TEST(CommunicatorTest, ACallThatDiffersFromAPeersIsAnError) {
  RunRanks(MakeSegment(2), 10, [](Communicator& group) {
    std::vector<float> x(group.rank() == 0 ? 5 : 6);
    const Status status = group.AllReduce(x, x);
    EXPECT_FALSE(status.ok());
    if (status.code() == StatusCode::kUnavailable) return;  // the peer saw it first
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_NE(status.message().find("makes another call"), std::string::npos) << status.message();
  });
}

TEST(CommunicatorTest, JoinRefusesARankThatDoesNotExistOrIsTaken) {
  const std::shared_ptr<SharedSegment> segment = MakeSegment(2);
  EXPECT_EQ(Communicator::Join(segment, 2).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Communicator::Join(segment, -1).status().code(), StatusCode::kInvalidArgument);
  const auto first = Communicator::Join(segment, 1);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(Communicator::Join(segment, 1).status().code(), StatusCode::kFailedPrecondition);
}

TEST(CommunicatorTest, WaitForAllNamesWhoIsMissingAndMayBeRepeated) {
  const std::shared_ptr<SharedSegment> segment = MakeSegment(3);
  const auto zero = Communicator::Join(segment, 0);
  const Status early = (*zero)->WaitForAll(milliseconds(1));
  EXPECT_EQ(early.code(), StatusCode::kUnavailable);
  EXPECT_EQ(early.message(), "of 3 ranks these have not joined: 1, 2");
  const auto one = Communicator::Join(segment, 1);
  const auto two = Communicator::Join(segment, 2);
  EXPECT_TRUE((*zero)->WaitForAll(milliseconds(1)).ok());
  (*zero)->CheckIntegrity();
}

TEST(CommunicatorTest, WaitForAllNoticesThatARankHasEnded) {
  const std::shared_ptr<SharedSegment> segment = MakeSegment(3);
  const auto zero = Communicator::Join(segment, 0);
  { const auto one = Communicator::Join(segment, 1); }
  const Status status = (*zero)->WaitForAll(milliseconds(60'000));
  EXPECT_EQ(status.message(), "rank 1 of 3 ended before all had joined");
}

}  // namespace
}  // namespace pagemill::comm
