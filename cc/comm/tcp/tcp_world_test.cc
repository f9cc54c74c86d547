// Threads as ranks of several nodes, connected over the loopback interface.
#include "cc/comm/tcp/tcp_world.h"

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cc/comm/group_conformance.h"
#include "cc/comm/tcp/testing/reserved_port.h"
#include "gtest/gtest.h"

namespace pagemill::comm {
namespace {

using std::chrono::milliseconds;
using Body = std::function<void(TcpWorld&)>;

Status WaitLong(World& world) {
  Status status;
  do {
    status = world.WaitForAll(milliseconds(100));
  } while (status.code() == StatusCode::kUnavailable);
  return status;
}

// The shared memory of each node, if it has whole tensor groups of several ranks.
std::vector<std::shared_ptr<SharedSegment>> Segments(const NodeOptions& options) {
  std::vector<std::shared_ptr<SharedSegment>> segments(static_cast<size_t>(options.num_nodes));
  const int32_t tensor = options.topology.tensor, local = options.ranks_per_node();
  if (tensor == 1 || local % tensor != 0) return segments;
  for (auto& segment : segments) {
    segment = *SharedSegment::Create(
        {.topology = {.pipeline = local / tensor, .tensor = tensor}, .slot_bytes = 256});
  }
  return segments;
}

// Runs `body` on one thread for each rank. No rank leaves before all have run it.
void RunWorlds(const Topology& topology, int32_t num_nodes, int32_t spin_us, const Body& body) {
  const NodeOptions options = {.master = testing::ReservedPort(),
                               .topology = topology,
                               .num_nodes = num_nodes,
                               .spin_us = spin_us};
  const auto segments = Segments(options);
  std::vector<std::shared_ptr<TcpWorld>> worlds(static_cast<size_t>(topology.num_ranks()));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < topology.num_ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      std::shared_ptr<TcpWorld>& world = worlds[static_cast<size_t>(rank)];
      const auto& segment = segments[static_cast<size_t>(options.node_of(rank))];
      std::shared_ptr<SharedMemoryWorld> local;
      if (segment != nullptr) {
        local = *SharedMemoryWorld::Join(segment, options.local(rank).rank);
      }
      world = *TcpWorld::Join(options, rank, local);
      ASSERT_TRUE(WaitLong(*world).ok());
      body(*world);
      if (::testing::Test::HasFailure()) world->Leave();  // releases its peers
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Two nodes, each with one rank of a tensor group, which run different bodies.
void RunPair(const Body& zero, const Body& one) {
  RunWorlds({.tensor = 2}, 2, 10,
            [&](TcpWorld& world) { world.rank() == 0 ? zero(world) : one(world); });
}

Group& Tensor(TcpWorld& world) { return *world.groups().at(Axis::kTensor); }

Status Meet(Group& group) {
  float nothing = 0;
  return group.AllReduce(DType::kF32, &nothing, &nothing, 1);
}

class ConformanceTest : public ::testing::TestWithParam<int32_t> {};

TEST_P(ConformanceTest, EveryCallOfEverySizeGivesWhatItHasTo) {
  for (const int32_t spin_us : {0, 50}) {
    RunWorlds({.tensor = GetParam()}, GetParam(), spin_us, [](TcpWorld& world) {
      conformance::CheckCollectives(Tensor(world), 11, 120);
      conformance::CheckSumsAreRoundedOnce(Tensor(world));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(TwoToFour, ConformanceTest, ::testing::Values(2, 3, 4));

// All-reduces numbers of very different sizes, so that the order of a sum changes its bits, in
// several pieces.
TEST(TcpGroupTest, SumsAreInRankOrder) {
  constexpr size_t kSize = 700'001;
  RunWorlds({.tensor = 3}, 3, 20, [](TcpWorld& world) {
    std::minstd_rand random(3);
    std::vector<float> expected(kSize), mine(kSize);
    for (int32_t r = 0; r < 3; ++r) {
      for (size_t i = 0; i < kSize; ++i) {
        const float mantissa = static_cast<float>(random() % 20001) / 10000.0f - 1.0f;
        const float given = std::ldexp(mantissa, static_cast<int>(random() % 24) - 12);
        expected[i] = r == 0 ? given : expected[i] + given;
        if (r == world.rank()) mine[i] = given;
      }
    }
    ASSERT_TRUE(Tensor(world).AllReduce(DType::kF32, mine.data(), mine.data(), kSize).ok());
    EXPECT_EQ(std::memcmp(mine.data(), expected.data(), kSize * sizeof(float)), 0);
  });
}

TEST(TcpGroupTest, LargeDataOfEveryCallArrives) {
  RunWorlds({.tensor = 2}, 2, 0, [](TcpWorld& world) {
    Group& group = Tensor(world);
    const auto self = static_cast<size_t>(group.rank());
    const std::vector<int64_t> sizes = {3 << 20, 2'500'001};
    const auto number = [](size_t rank, size_t i) {
      return static_cast<std::byte>(rank * 101 + i * 7 + (i >> 16));
    };
    std::vector<std::byte> mine(static_cast<size_t>(sizes[self])), all(sizes[0] + sizes[1]);
    for (size_t i = 0; i < mine.size(); ++i) mine[i] = number(self, i);
    ASSERT_TRUE(group.AllGather(mine.data(), all.data(), 1, sizes).ok());
    for (size_t i = 0; i < all.size(); ++i) {
      const auto first = static_cast<size_t>(sizes[0]);
      ASSERT_EQ(all[i], i < first ? number(0, i) : number(1, i - first)) << i;
    }
    std::vector<std::byte> copy(all.size());
    if (self == 0) copy = all;
    ASSERT_TRUE(group.Broadcast(copy, 0).ok());
    EXPECT_EQ(copy, all);
    std::vector<int32_t> ones(1'000'000, 1), sums(500'000);
    ASSERT_TRUE(group
                    .ReduceScatter(DType::kI32, ones.data(), sums.data(),
                                   std::vector<int64_t>{500'000, 500'000})
                    .ok());
    EXPECT_EQ(sums, std::vector<int32_t>(500'000, 2));
  });
}

TEST(TcpWorldTest, GroupsOfOneNodeUseItsMemory) {
  RunWorlds({.pipeline = 2, .tensor = 2}, 2, 20, [](TcpWorld& world) {
    const Groups groups = world.groups();
    EXPECT_EQ(dynamic_cast<TcpGroup*>(groups.at(Axis::kTensor)), nullptr);
    EXPECT_NE(dynamic_cast<TcpGroup*>(groups.at(Axis::kPipeline)), nullptr);
    EXPECT_EQ(groups.at(Axis::kData), nullptr);
    EXPECT_EQ(world.local().num_ranks, 2);
    EXPECT_EQ(world.local().rank, world.rank() % 2);
    for (uint32_t round = 0; round < 3; ++round) {
      for (const Axis axis : {Axis::kTensor, Axis::kPipeline, Axis::kExpert}) {
        conformance::CheckCollectives(*groups.at(axis), round, 20);
      }
    }
  });
}

TEST(TcpWorldTest, AGroupOfSeveralNodesIsConnectedAsAWhole) {
  RunWorlds({.tensor = 4}, 2, 20,
            [](TcpWorld& world) { conformance::CheckCollectives(Tensor(world), 5, 60); });
}

TEST(TcpWorldTest, ARankThatIsDoneEndsAllInOrder) {
  RunPair([](TcpWorld& world) { world.Leave(); },
          [](TcpWorld& world) {
            std::byte data[1];
            const Status status = Tensor(world).Receive(data, 0);
            EXPECT_EQ(status, Unavailable("rank 0 of 2 (node 0, 127.0.0.1) has left the group"));
            EXPECT_EQ(Meet(Tensor(world)), status) << "later calls repeat it";
            EXPECT_TRUE(world.is_done());
            EXPECT_EQ(world.Check().code(), StatusCode::kUnavailable);
          });
}

// By the farewell of the one that waited for it.
TEST(TcpWorldTest, AllLearnWhichRankHasDied) {
  std::atomic<bool> is_over{false};
  RunWorlds({.tensor = 3}, 3, 10, [&](TcpWorld& world) {
    EXPECT_TRUE(world.Check().ok());
    ASSERT_TRUE(Meet(Tensor(world)).ok());
    if (world.rank() == 2) world.Leave();
    std::byte data[1];
    // Rank 1 waits for rank 2, and rank 0 for rank 1.
    if (world.rank() == 1) {
      EXPECT_FALSE(Tensor(world).Receive(data, 2).ok());
    }
    if (world.rank() != 0) return;
    const Status status = Tensor(world).Receive(data, 1);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_NE(status.message().find("rank 2 of 3 (node 2, 127.0.0.1)"), std::string::npos)
        << status.message();
    is_over = true;
  });
  EXPECT_TRUE(is_over);
}

// Its own connections are over by then, too.
TEST(TcpWorldTest, ARankThatHasEndedNamesTheFirst) {
  RunWorlds({.tensor = 3}, 3, 10, [](TcpWorld& world) {
    ASSERT_TRUE(Meet(Tensor(world)).ok());
    if (world.rank() == 2) world.Leave();
    if (world.rank() != 0) return;
    std::byte data[1];
    EXPECT_FALSE(Tensor(world).Receive(data, 2).ok());
    EXPECT_EQ(world.Check(),
              Unavailable("rank 2 of 3 (node 2, 127.0.0.1) has died or left the group"));
  });
}

TEST(TcpWorldTest, ARankThatLeavesBecauseOfAnotherSaysSo) {
  RunWorlds({.tensor = 3}, 3, 10, [](TcpWorld& world) {
    ASSERT_TRUE(Meet(Tensor(world)).ok());
    if (world.rank() == 2) world.Leave();
    if (world.rank() == 0) {
      while (world.Check().ok()) std::this_thread::sleep_for(milliseconds(1));
      world.Leave();
    }
    if (world.rank() != 1) return;
    std::byte data[1];
    EXPECT_EQ(Tensor(world).Receive(data, 0),
              Unavailable("rank 2 of 3 (node 2, 127.0.0.1) has died or left the group"));
    EXPECT_FALSE(world.is_done());
  });
}

TEST(TcpWorldTest, ARankThatKnowsOfADeathIsNotDone) {
  RunPair(
      [](TcpWorld& world) {
        world.NoteDeath();
        world.Leave();
      },
      [](TcpWorld& world) {
        std::byte data[1];
        EXPECT_EQ(Tensor(world).Receive(data, 0),
                  Unavailable("rank 0 of 2 (node 0, 127.0.0.1) has died or left the group"));
        EXPECT_FALSE(world.is_done());
      });
}

void ExpectMismatch(const std::function<Status(Group&)>& zero,
                    const std::function<Status(Group&)>& one) {
  Status results[2];
  RunPair([&](TcpWorld& world) { results[0] = zero(Tensor(world)); },
          [&](TcpWorld& world) { results[1] = one(Tensor(world)); });
  // The first to notice says so, and the other one receives its farewell or notices, too.
  const auto is_mismatch = [](const Status& status) {
    return status.message().find("has made another call") != std::string::npos;
  };
  EXPECT_TRUE(is_mismatch(results[0]) || is_mismatch(results[1]));
  EXPECT_FALSE(results[0].ok() && results[1].ok());
}

TEST(TcpGroupTest, MismatchedCallsAreErrors) {
  const auto reduce = [](DType dtype, int64_t count) {
    return [=](Group& group) {
      std::vector<float> x(16);
      PAGEMILL_RETURN_IF_ERROR(group.AllReduce(dtype, x.data(), x.data(), count));
      return Meet(group);
    };
  };
  const auto broadcast = [](int64_t count, int32_t root) {
    return [=](Group& group) {
      std::vector<std::byte> x(static_cast<size_t>(count));
      PAGEMILL_RETURN_IF_ERROR(group.Broadcast(x, root));
      return Meet(group);
    };
  };
  const auto send = [](int64_t count) {
    return [=](Group& group) {
      std::vector<std::byte> x(static_cast<size_t>(count));
      return group.rank() == 0 ? group.Send(x, 1) : group.Receive(x, 0);
    };
  };
  ExpectMismatch(reduce(DType::kF32, 5), reduce(DType::kF32, 6));
  ExpectMismatch(reduce(DType::kF32, 4), reduce(DType::kI32, 4));
  ExpectMismatch(reduce(DType::kF32, 3), reduce(DType::kF32, 0));
  ExpectMismatch(reduce(DType::kF32, 4), broadcast(16, 0));
  ExpectMismatch(broadcast(4, 0), broadcast(5, 0));
  ExpectMismatch(broadcast(4, 0), broadcast(4, 1));
  ExpectMismatch(send(4), send(5));
  ExpectMismatch(reduce(DType::kF32, 0), [](Group& group) { return Meet(group); });
}

// A rank that sleeps before each call, and one that reads slowly.
TEST(TcpGroupTest, ASlowRankIsWaitedFor) {
  RunPair(
      [](TcpWorld& world) {
        std::vector<std::byte> data(8 << 20, std::byte{5});
        EXPECT_TRUE(Tensor(world).Send(data, 1).ok());
        EXPECT_TRUE(Meet(Tensor(world)).ok());
      },
      [](TcpWorld& world) {
        std::this_thread::sleep_for(milliseconds(200));
        std::vector<std::byte> data(8 << 20);
        EXPECT_TRUE(Tensor(world).Receive(data, 0).ok());
        EXPECT_EQ(data.back(), std::byte{5});
        std::this_thread::sleep_for(milliseconds(100));
        EXPECT_TRUE(Meet(Tensor(world)).ok());
      });
}

// A pair of connected sockets, one of which belongs to a rank.
struct Connected {
  Connected() {
    net::TcpSocket listener = *net::TcpSocket::Listen(*net::NetAddress::Parse("127.0.0.1:0"));
    far.emplace(*net::TcpSocket::Connect(*listener.address(), 10'000));
    pollfd polled = {.fd = listener.fd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&polled, 1, 30'000), 1);
    links.Add(1, **listener.Accept(10'000));
  }
  Status Receive(size_t bytes) {
    std::vector<std::byte> data(bytes);
    const Links::Incoming in = {.rank = 1, .call = 77, .data = data};
    return links.Exchange({}, {&in, 1});
  }

  std::optional<net::TcpSocket> far;
  Links links{{"rank 0", "rank 1"}, std::chrono::microseconds(0)};
};

TEST(LinksTest, GarbageIsAnErrorThatReadsNoMoreThanTheCall) {
  std::mt19937 random(11);
  for (int i = 0; i < 200; ++i) {
    Connected pair;
    std::vector<std::byte> garbage(16 + random() % 4000);
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
    ASSERT_EQ(*pair.far->Send(garbage), garbage.size());
    const Status status = pair.Receive(random() % 2000);
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status.ToString();
  }
}

TEST(LinksTest, APeerThatStopsInTheMiddleIsGone) {
  for (const size_t bytes : {0, 1, 15, 16, 20}) {
    for (const bool half : {false, true}) {  // closes both directions, or its own
      Connected pair;
      std::vector<std::byte> message(16 + 100);
      message[0] = std::byte{77};
      message[8] = std::byte{100};
      ASSERT_EQ(*pair.far->Send(std::span(message).first(bytes)), bytes);
      (void)shutdown(pair.far->fd(), half ? SHUT_WR : SHUT_RDWR);
      EXPECT_EQ(pair.Receive(100), Unavailable("rank 1 has died or left the group")) << bytes;
      EXPECT_EQ(pair.links.FindGone(), 1);
    }
  }
}

TEST(LinksTest, AFarewellNamesTheRankThatEnded) {
  Connected pair;
  std::byte farewell[16] = {};  // rank 0, which is not done
  ASSERT_EQ(*pair.far->Send(farewell), sizeof(farewell));
  EXPECT_EQ(pair.Receive(100), Unavailable("rank 0 has died or left the group"));
  Connected other;
  farewell[8] = std::byte{9};  // no rank
  ASSERT_EQ(*other.far->Send(farewell), sizeof(farewell));
  EXPECT_EQ(other.Receive(100).code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace pagemill::comm
