// Threads as ranks: one mapping, so that a thread sanitizer sees every access. For processes as
// ranks see shared_memory_process_test.cc.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cc/comm/group_conformance.h"
#include "cc/comm/shared_memory_world.h"

namespace pagemill::comm {
namespace {

using std::chrono::milliseconds;

std::shared_ptr<SharedSegment> MakeSegment(const Topology& topology, int64_t slot_bytes = 256) {
  return *SharedSegment::Create({.topology = topology, .slot_bytes = slot_bytes});
}

// Runs `body` on one thread per rank. No rank leaves before all have run it.
void RunWorlds(const std::shared_ptr<SharedSegment>& segment, int32_t spin_us,
               const std::function<void(SharedMemoryWorld&)>& body) {
  std::vector<std::shared_ptr<SharedMemoryWorld>> worlds;
  for (int32_t r = 0; r < segment->topology().num_ranks(); ++r) {
    worlds.push_back(*SharedMemoryWorld::Join(segment, r, {.spin_us = spin_us}));
  }
  std::vector<std::thread> threads;
  for (const auto& world : worlds) {
    threads.emplace_back([&body, world = world.get()] {
      body(*world);
      if (::testing::Test::HasFailure()) world->Leave();  // releases its peers
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& world : worlds) world->CheckIntegrity();
}

// `body` receives the tensor group.
void RunRanks(const std::shared_ptr<SharedSegment>& segment, int32_t spin_us,
              const std::function<void(Group&)>& body) {
  RunWorlds(segment, spin_us,
            [&](SharedMemoryWorld& world) { body(*world.groups().at(Axis::kTensor)); });
}

Status AllReduce(Group& group, std::vector<float>& x) {
  return group.AllReduce(DType::kF32, x.data(), x.data(), static_cast<int64_t>(x.size()));
}

Status Broadcast(Group& group, float* value, int32_t root) {
  return group.Broadcast(std::as_writable_bytes(std::span(value, 1)), root);
}

// All-reduces numbers of very different sizes, so that the order of a sum changes its bits.
void CheckRankOrder(Group& group, uint32_t seed, size_t size) {
  std::minstd_rand random(seed);
  std::vector<float> expected(size), mine(size);
  for (int32_t r = 0; r < group.num_ranks(); ++r) {
    for (size_t i = 0; i < size; ++i) {
      const float mantissa = static_cast<float>(random() % 20001) / 10000.0f - 1.0f;
      const float given = std::ldexp(mantissa, static_cast<int>(random() % 24) - 12);
      expected[i] = r == 0 ? given : expected[i] + given;
      if (r == group.rank()) mine[i] = given;
    }
  }
  ASSERT_TRUE(AllReduce(group, mine).ok()) << group.status().ToString();
  EXPECT_EQ(std::memcmp(mine.data(), expected.data(), size * sizeof(float)), 0) << group.rank();
}

class ConformanceTest : public ::testing::TestWithParam<int32_t> {};

TEST_P(ConformanceTest, EveryCallOfEverySizeGivesWhatItHasTo) {
  for (const int32_t spin_us : {0, 50}) {
    RunRanks(MakeSegment({.tensor = GetParam()}), spin_us, [](Group& group) {
      conformance::CheckCollectives(group, 11, 120);
      conformance::CheckSumsAreRoundedOnce(group);
      CheckRankOrder(group, 3, 577);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(TwoToFour, ConformanceTest, ::testing::Values(2, 3, 4));

TEST(SharedMemoryGroupTest, GroupsOfAllAxesWorkSideBySide) {
  RunWorlds(MakeSegment({.data = 2, .pipeline = 2, .tensor = 2}), 20, [](SharedMemoryWorld& world) {
    const Groups groups = world.groups();
    for (uint32_t round = 0; round < 3; ++round) {
      for (Axis axis : kAxes) conformance::CheckCollectives(*groups.at(axis), round, 20);
    }
  });
}

TEST(SharedMemoryGroupTest, AnAxisOfOneRankHasNoGroup) {
  RunWorlds(MakeSegment({.data = 3}), 0, [](SharedMemoryWorld& world) {
    const Groups groups = world.groups();
    EXPECT_EQ(groups.at(Axis::kTensor), nullptr);
    EXPECT_EQ(groups.at(Axis::kPipeline), nullptr);
    EXPECT_EQ(groups.at(Axis::kData)->num_ranks(), 3);
    EXPECT_EQ(groups.at(Axis::kData)->rank(), world.rank());
    EXPECT_TRUE(groups.status().ok());
  });
  RunWorlds(MakeSegment({}), 0, [](SharedMemoryWorld& world) {
    for (Axis axis : kAxes) EXPECT_EQ(world.groups().at(axis), nullptr);
    EXPECT_TRUE(world.WaitForAll(milliseconds(0)).ok());
  });
}

TEST(SharedMemoryGroupTest, GroupsKeepTheirWorld) {
  const auto segment = MakeSegment({.tensor = 2});
  Groups groups = (*SharedMemoryWorld::Join(segment, 0))->groups();
  EXPECT_EQ(segment->state(0).left.load(), 0u);
  groups = {};
  EXPECT_EQ(segment->state(0).left.load(), 1u);
}

// Rows of data-parallel ranks, one of which is idle.
TEST(SharedMemoryGroupTest, ARankWithoutRowsTakesPart) {
  RunWorlds(MakeSegment({.data = 3}), 10, [](SharedMemoryWorld& world) {
    Group& data = *world.groups().at(Axis::kData);
    constexpr int64_t kRow = 5 * sizeof(int32_t);
    for (int32_t idle = 0; idle < 3; ++idle) {
      std::vector<int64_t> bytes;
      std::vector<int32_t> mine, all;
      for (int32_t r = 0; r < 3; ++r) {
        const int64_t rows = r == idle ? 0 : 40 * (r + 1);
        bytes.push_back(rows * kRow);
        all.insert(all.end(), static_cast<size_t>(5 * rows), 100 * idle + r);
        if (r == data.rank()) mine.assign(static_cast<size_t>(5 * rows), 100 * idle + r);
      }
      std::vector<int32_t> out(all.size());
      ASSERT_TRUE(data.AllGather(mine.data(), out.data(), 1, bytes).ok());
      EXPECT_EQ(out, all);
    }
  });
}

TEST(SharedMemoryGroupTest, MessagesGoBothWaysAtOnce) {
  RunRanks(MakeSegment({.tensor = 2}), 10, [](Group& group) {
    const int32_t peer = 1 - group.rank();
    // Two slots of a message are sent before the receiver takes them.
    std::vector<std::byte> mine(512, static_cast<std::byte>(group.rank())), got(512);
    for (int round = 0; round < 10; ++round) {
      ASSERT_TRUE(group.Send(mine, peer).ok());
      ASSERT_TRUE(group.Receive(got, peer).ok());
      EXPECT_EQ(got, std::vector<std::byte>(512, static_cast<std::byte>(peer)));
    }
  });
}

TEST(SharedMemoryGroupTest, MessagesOfAPairNeedNoOtherRank) {
  RunRanks(MakeSegment({.tensor = 4}), 10, [](Group& group) {
    std::vector<std::byte> data(2000, std::byte{7});
    if (group.rank() == 0) {
      EXPECT_TRUE(group.Send(data, 3).ok());
    } else if (group.rank() == 3) {
      std::vector<std::byte> got(2000);
      EXPECT_TRUE(group.Receive(got, 0).ok());
      EXPECT_EQ(got, data);
    }
  });
}

TEST(SharedMemoryGroupTest, ABroadcastBetweenReductionsDoesNotOvertakeASlowReader) {
  RunRanks(MakeSegment({.tensor = 3}, 16 << 10), 50, [](Group& group) {
    for (uint32_t call = 0; call < 60; call += 3) {
      CheckRankOrder(group, call + 1, 4096);
      float value = group.rank() == 0 ? static_cast<float>(call) : -1.0f;
      ASSERT_TRUE(Broadcast(group, &value, 0).ok());
      EXPECT_EQ(value, static_cast<float>(call));
      CheckRankOrder(group, call + 2, 4096);
    }
  });
}

TEST(SharedMemoryGroupTest, PieceNumbersWrapAround) {
  const std::shared_ptr<SharedSegment> segment = MakeSegment({.tensor = 2}, 64);
  std::vector<Lane*> lanes;
  for (int32_t r = 0; r < 2; ++r) {
    for (int32_t index = 0; index < 1 + 2 * 2; ++index) {
      lanes.push_back(&segment->lane(r, Axis::kTensor, {index}));
      lanes.back()->begun.store(0xfffffff0u);
    }
  }
  RunRanks(segment, 0, [](Group& group) { conformance::CheckCollectives(group, 5, 80); });
  EXPECT_LT(lanes[0]->begun.load(), 0xfffffff0u);
  EXPECT_LT(segment->lane(0, Axis::kTensor, LaneIndex::To(1)).begun.load(), 0xfffffff0u);
}

TEST(SharedMemoryGroupTest, AWaitingRankSleeps) {
  double busy_s = -1;
  RunRanks(MakeSegment({.tensor = 2}), 100, [&](Group& group) {
    float value = 0;
    if (group.rank() == 0) {
      std::this_thread::sleep_for(milliseconds(400));
      EXPECT_TRUE(Broadcast(group, &value, 0).ok());
      return;
    }
    EXPECT_TRUE(Broadcast(group, &value, 0).ok());
    rusage usage = {};
    getrusage(RUSAGE_THREAD, &usage);
    busy_s = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
             1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  });
  // 20 checks of its peers; spinning would take most of 400 ms.
  EXPECT_GE(busy_s, 0);
  EXPECT_LT(busy_s, 0.2);
}

TEST(SharedMemoryGroupTest, ASleepingRankIsWokenAtOnce) {
  std::vector<std::chrono::nanoseconds> taken;  // by rank 0 for two calls: one as the root
  RunRanks(MakeSegment({.tensor = 2}), 0, [&taken](Group& group) {
    auto start = std::chrono::steady_clock::now();
    for (int32_t call = 0; call < 50; ++call) {
      const int32_t root = call % 2;
      if (group.rank() == root) std::this_thread::sleep_for(milliseconds(1));
      float value = 0;
      ASSERT_TRUE(Broadcast(group, &value, root).ok());
      if (group.rank() == root) std::this_thread::sleep_for(milliseconds(1));
      const auto bytes = std::as_writable_bytes(std::span(&value, 1));
      ASSERT_TRUE(
          (group.rank() == root ? group.Send(bytes, 1 - root) : group.Receive(bytes, root)).ok());
      if (group.rank() == 0 && call % 2 == 1) {
        const auto end = std::chrono::steady_clock::now();
        taken.push_back(end - start);
        start = end;
      }
    }
  });
  // Sleepers that only check every 20 ms would take 80 ms. The median: the machine may be busy.
  ASSERT_EQ(taken.size(), 25u);
  std::ranges::nth_element(taken, taken.begin() + 12);
  EXPECT_LT(taken[12], milliseconds(48));
}

// The calls in which a rank may wait.
const std::vector<std::pair<const char*, std::function<Status(Group&)>>>& WaitingCalls() {
  static const auto* calls = new std::vector<std::pair<const char*, std::function<Status(Group&)>>>{
      {"all-reduce",
       [](Group& group) {
         std::vector<float> x(7);
         return AllReduce(group, x);
       }},
      {"reduce-scatter",
       [](Group& group) {
         const std::vector<float> x(6);
         const std::vector<int64_t> counts = {1, 2, 3};
         float sums[3];
         return group.ReduceScatter(DType::kF32, x.data(), sums, counts);
       }},
      {"all-gather",
       [](Group& group) {
         const std::vector<int64_t> widths = {1, 2, 0};
         std::byte in[2] = {}, out[3];
         return group.AllGather(in, out, 1, widths);
       }},
      {"all-to-all",
       [](Group& group) {
         const std::vector<int64_t> bytes = {1, 1, 1};
         std::byte in[3] = {}, out[3];
         return group.AllToAll(in, bytes, out, bytes);
       }},
      {"receive",
       [](Group& group) {
         std::byte data[1];
         return group.Receive(data, 1);
       }},
      {"send",
       [](Group& group) {
         const std::vector<std::byte> data(1000);
         return group.Send(data, 1);
       }},
  };
  return *calls;
}

TEST(SharedMemoryGroupTest, ARankThatLeavesEndsEveryCallOfItsPeers) {
  for (const auto& [name, call] : WaitingCalls()) {
    RunRanks(MakeSegment({.tensor = 3}), 10, [&](Group& group) {
      CheckRankOrder(group, 1, 7);
      if (group.rank() == 1) return group.Leave();
      const Status status = call(group);
      EXPECT_EQ(status.code(), StatusCode::kUnavailable) << name << ": " << status.ToString();
      EXPECT_EQ(call(group), status) << "the error repeats";
      EXPECT_EQ(group.Broadcast({}, 0), status);
    });
  }
}

TEST(SharedMemoryGroupTest, ARankThatEndsInOneGroupEndsInAll) {
  // 0 1 / 2 3 are the tensor groups: 3 leaves, and 0 notices in calls with 1 alone.
  RunWorlds(MakeSegment({.data = 2, .tensor = 2}), 10, [](SharedMemoryWorld& world) {
    const Groups groups = world.groups();
    std::vector<float> x(3);
    ASSERT_TRUE(AllReduce(*groups.at(Axis::kExpert), x).ok());
    if (world.rank() == 3) return groups.at(Axis::kTensor)->Leave();
    const Axis axis = world.rank() == 1 ? Axis::kData : Axis::kTensor;
    const Status status = AllReduce(*groups.at(axis), x);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << world.rank();
    for (Axis other : {Axis::kTensor, Axis::kData, Axis::kExpert}) {
      EXPECT_EQ(AllReduce(*groups.at(other), x), status) << "gives nothing to another group";
    }
    EXPECT_EQ(groups.status(), status);
  });
}

TEST(SharedMemoryGroupTest, AResultThatIsCompleteIsNotLostWhenAPeerLeaves) {
  for (uint32_t round = 0; round < 20; ++round) {
    RunRanks(MakeSegment({.tensor = 2}), 0, [&](Group& group) {
      CheckRankOrder(group, round + 1, 50);
      group.Leave();
    });
  }
}

// Both ranks make mismatched calls; the first to detect it reports it.
void ExpectMismatch(const std::function<Status(Group&)>& zero,
                    const std::function<Status(Group&)>& one) {
  RunRanks(MakeSegment({.tensor = 2}), 10, [&](Group& group) {
    Status status = group.rank() == 0 ? zero(group) : one(group);
    std::vector<float> x(3);
    if (status.ok()) status = AllReduce(group, x);
    EXPECT_FALSE(status.ok());
    if (status.code() == StatusCode::kUnavailable) return;  // the peer saw it first
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_NE(status.message().find("makes another call"), std::string::npos) << status.message();
  });
}

TEST(SharedMemoryGroupTest, ACallThatDiffersFromAPeersIsAnError) {
  const auto reduce = [](DType dtype, int64_t count) {
    return [=](Group& group) {
      std::vector<float> x(8);
      return group.AllReduce(dtype, x.data(), x.data(), count);
    };
  };
  const auto scatter = [](int64_t first, int64_t second) {
    return [=](Group& group) {
      const std::vector<float> in(8);
      std::vector<float> out(8);
      const std::vector<int64_t> counts = {first, second};
      return group.ReduceScatter(DType::kF32, in.data(), out.data(), counts);
    };
  };
  const auto gather = [](int64_t rows, int64_t first, int64_t second) {
    return [=](Group& group) {
      const std::vector<int64_t> widths = {first, second};
      std::byte in[8] = {}, out[8];
      return group.AllGather(in, out, rows, widths);
    };
  };
  const auto exchange = [](int64_t given, int64_t taken) {
    return [=](Group& group) {
      std::vector<int64_t> in_bytes = {given, given}, out_bytes = {taken, taken};
      in_bytes[static_cast<size_t>(group.rank())] = 0;
      out_bytes[static_cast<size_t>(group.rank())] = 0;
      std::byte in[8] = {}, out[8];
      return group.AllToAll(in, in_bytes, out, out_bytes);
    };
  };
  ExpectMismatch(reduce(DType::kF32, 5), reduce(DType::kF32, 6));
  ExpectMismatch(reduce(DType::kF32, 4), reduce(DType::kI32, 4));
  ExpectMismatch(reduce(DType::kF32, 4), scatter(2, 2));
  ExpectMismatch(scatter(2, 3), scatter(3, 2));
  ExpectMismatch(exchange(3, 4), exchange(5, 3));
  ExpectMismatch(reduce(DType::kF32, 3), exchange(3, 3));
  ExpectMismatch(gather(1, 2, 6), gather(2, 1, 3));
  ExpectMismatch(gather(1, 2, 6), gather(1, 6, 2));
  // An empty call of only one rank is detected in the next call.
  ExpectMismatch(reduce(DType::kF32, 3), reduce(DType::kF32, 0));
  ExpectMismatch(reduce(DType::kF32, 0), [](Group&) { return OkStatus(); });
}

TEST(SharedMemoryGroupTest, AMessageOfAnotherSizeIsAnError) {
  ExpectMismatch(
      [](Group& group) {
        const std::byte data[4] = {};
        return group.Send(data, 1);
      },
      [](Group& group) {
        std::byte data[5];
        return group.Receive(data, 0);
      });
}

TEST(SharedMemoryWorldTest, JoinRefusesARankThatDoesNotExistOrIsTaken) {
  const std::shared_ptr<SharedSegment> segment = MakeSegment({.tensor = 2});
  EXPECT_EQ(SharedMemoryWorld::Join(segment, 2).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(SharedMemoryWorld::Join(segment, -1).status().code(), StatusCode::kInvalidArgument);
  const auto first = SharedMemoryWorld::Join(segment, 1);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(SharedMemoryWorld::Join(segment, 1).status().code(), StatusCode::kFailedPrecondition);
}

TEST(SharedMemoryWorldTest, WaitForAllNamesTheMissingRanksAndMayBeRepeated) {
  const std::shared_ptr<SharedSegment> segment = MakeSegment({.tensor = 3});
  const auto zero = *SharedMemoryWorld::Join(segment, 0);
  const Status early = zero->WaitForAll(milliseconds(1));
  EXPECT_EQ(early.code(), StatusCode::kUnavailable);
  EXPECT_EQ(early.message(), "of 3 ranks these have not joined: 1, 2");
  const auto one = *SharedMemoryWorld::Join(segment, 1);
  const auto two = *SharedMemoryWorld::Join(segment, 2);
  EXPECT_TRUE(zero->WaitForAll(milliseconds(1)).ok());
  zero->CheckIntegrity();
}

TEST(SharedMemoryWorldTest, WaitForAllNoticesThatARankHasEnded) {
  const std::shared_ptr<SharedSegment> segment = MakeSegment({.tensor = 3});
  const auto zero = *SharedMemoryWorld::Join(segment, 0);
  { const auto one = *SharedMemoryWorld::Join(segment, 1); }
  const Status status = zero->WaitForAll(milliseconds(60'000));
  EXPECT_EQ(status.message(), "rank 1 of 3 ended before all had joined");
}

}  // namespace
}  // namespace pagemill::comm
