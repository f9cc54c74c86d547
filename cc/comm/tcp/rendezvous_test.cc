// Ranks that join, as threads, and what else may come to the port of rank 0.
#include "cc/comm/tcp/rendezvous.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "cc/comm/tcp/join_messages.h"
#include "cc/comm/tcp/testing/reserved_port.h"
#include "cc/net/frame_stream.h"
#include "cc/net/handshake.h"
#include "cc/net/secret.h"
#include "cc/net/tcp_socket.h"
#include "gtest/gtest.h"

namespace pagemill::comm {
namespace {

using std::chrono::milliseconds;

constexpr char kSecret[] = "what all nodes know";

NodeOptions Options(const Topology& topology, int32_t num_nodes) {
  return {.master = testing::ReservedPort(),
          .secret = kSecret,
          .topology = topology,
          .num_nodes = num_nodes,
          .version = "1.0"};
}

// Runs until it succeeds or has failed, or for `limit`.
Status RunFor(Rendezvous& rendezvous, milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (true) {
    Status status = rendezvous.Run(milliseconds(20));
    if (status.code() != StatusCode::kUnavailable) return status;
    if (std::chrono::steady_clock::now() > end) return status;
  }
}

// Runs until it says that `words` are why it has not ended, for a minute at most.
Status RunUntil(Rendezvous& rendezvous, const std::string& words) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  Status status;
  do {
    status = rendezvous.Run(milliseconds(20));
  } while (status.code() == StatusCode::kUnavailable &&
           status.message().find(words) == std::string::npos &&
           std::chrono::steady_clock::now() < end);
  return status;
}

constexpr char kHasJoined[] = "node 0 waits for other nodes";

// Runs it in a thread of its own while it lives.
class Running {
 public:
  explicit Running(Rendezvous& rendezvous)
      : thread_([this, &rendezvous] {
          while (!is_over_) (void)rendezvous.Run(milliseconds(20));
        }) {}
  ~Running() {
    is_over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

// Joins as a rank; the result, or why it could not.
StatusOr<Rendezvous::Result> JoinAs(const NodeOptions& options, int32_t rank) {
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<Rendezvous> rendezvous,
                            Rendezvous::Begin(options, rank));
  PAGEMILL_RETURN_IF_ERROR(RunFor(*rendezvous, milliseconds(60'000)));
  return std::move(*rendezvous).Take();
}

// Rank 0 waits; another one joins with options that `change` has made different, and is refused
// with a reason that has `words`. The right one joins afterwards.
void ExpectRefused(const std::function<void(NodeOptions*)>& change, const std::string& words) {
  NodeOptions options = Options({.pipeline = 2}, 2);
  auto zero = *Rendezvous::Begin(options, 0);
  Status seen, ended;
  std::atomic<bool> has_seen = false;
  std::thread master([&] {
    seen = RunUntil(*zero, words);
    has_seen = true;
    has_seen.notify_one();
    ended = RunFor(*zero, milliseconds(60'000));
  });
  NodeOptions other = options;
  change(&other);
  const Status refused = JoinAs(other, 1).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find(words), std::string::npos) << refused.message();
  has_seen.wait(false);
  EXPECT_TRUE(JoinAs(options, 1).ok());
  master.join();
  const std::string missing = "at " + options.master.ToString() + ": 1 (node 1)";
  EXPECT_NE(seen.message().find(missing), std::string::npos) << seen.message();
  EXPECT_NE(seen.message().find(words), std::string::npos) << seen.message();
  EXPECT_TRUE(ended.ok()) << ended.ToString();
}

TEST(RendezvousTest, RanksFindThoseOfTheirGroups) {
  NodeOptions options = Options({.pipeline = 2, .tensor = 2}, 4);
  std::vector<std::thread> threads;
  std::array<std::unique_ptr<StatusOr<Rendezvous::Result>>, 4> results;
  for (int32_t rank = 3; rank >= 0; --rank) {  // the first waits for the last
    threads.emplace_back([&, rank] {
      NodeOptions own = options;
      own.number = 100 - rank;
      results[static_cast<size_t>(rank)] =
          std::make_unique<StatusOr<Rendezvous::Result>>(JoinAs(own, rank));
    });
    std::this_thread::sleep_for(milliseconds(5));
  }
  for (std::thread& thread : threads) thread.join();
  for (int32_t rank = 0; rank < 4; ++rank) {
    StatusOr<Rendezvous::Result>& result = *results[static_cast<size_t>(rank)];
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(result->number, 97);
    EXPECT_EQ(result->hosts, std::vector<std::string>(4, "127.0.0.1"));
    for (int32_t peer = 0; peer < 4; ++peer) {
      const bool is_peer = peer != rank && peer != 3 - rank;  // all except the diagonal
      EXPECT_EQ(result->sockets[static_cast<size_t>(peer)].has_value(), is_peer);
    }
  }
}

TEST(RendezvousTest, AnotherSecretIsRefused) {
  ExpectRefused([](NodeOptions* options) { options->secret = "what one node knows"; },
                "--node-secret-file");
}

TEST(RendezvousTest, AnotherVersionIsRefusedByNamingBoth) {
  ExpectRefused([](NodeOptions* options) { options->version = "1.1"; },
                "node 1 has version 1.1 of Pagemill and node 0 has 1.0");
}

TEST(RendezvousTest, AnotherModelIsRefused) {
  ExpectRefused([](NodeOptions* options) { options->model[0] = 1; }, "node 1 has another model");
}

TEST(RendezvousTest, OtherOptionsAreRefused) {
  ExpectRefused([](NodeOptions* options) { options->options[0] = 1; },
                "node 1 was started with other options than node 0");
}

TEST(RendezvousTest, ASecondProcessOfARankIsRefused) {
  const NodeOptions options = Options({.pipeline = 3}, 3);
  auto zero = *Rendezvous::Begin(options, 0), one = *Rendezvous::Begin(options, 1);
  const Running master(*zero);
  EXPECT_EQ(RunUntil(*one, kHasJoined), Unavailable(kHasJoined)) << "2 is missing";
  const Status refused = JoinAs(options, 1).status();
  EXPECT_NE(refused.message().find("is --node-rank 1 given to two nodes?"), std::string::npos);
}

TEST(RendezvousTest, ARankThatEndsBeforeAllHaveComeMayComeAgain) {
  const NodeOptions options = Options({.pipeline = 3}, 3);
  std::thread master([&] { EXPECT_TRUE(JoinAs(options, 0).ok()); });
  {
    const auto one = *Rendezvous::Begin(options, 1);
    EXPECT_EQ(RunUntil(*one, kHasJoined), Unavailable(kHasJoined));
  }
  std::thread one([&] { EXPECT_TRUE(JoinAs(options, 1).ok()); });
  EXPECT_TRUE(JoinAs(options, 2).ok());
  one.join();
  master.join();
}

TEST(RendezvousTest, ARankEndsWithRankZero) {
  const NodeOptions options = Options({.pipeline = 3}, 3);
  auto one = *Rendezvous::Begin(options, 1);
  {
    const auto zero = *Rendezvous::Begin(options, 0);
    const Running master(*zero);
    EXPECT_EQ(RunUntil(*one, kHasJoined), Unavailable(kHasJoined));
  }
  const Status ended = RunFor(*one, milliseconds(30'000));
  EXPECT_EQ(ended, FailedPrecondition("rank 0 ended before all ranks had joined"));
}

TEST(RendezvousTest, RankZeroIsWaitedFor) {
  const NodeOptions options = Options({.pipeline = 2}, 2);
  auto one = *Rendezvous::Begin(options, 1);
  const Status waiting = RunFor(*one, milliseconds(50));
  EXPECT_EQ(waiting, Unavailable("node 0 does not answer at " + options.master.ToString()));
  std::thread master([&] { EXPECT_TRUE(JoinAs(options, 0).ok()); });
  EXPECT_TRUE(RunFor(*one, milliseconds(30'000)).ok());
  master.join();
}

// Strangers that connect and say nothing, or anything, keep no rank out.
TEST(RendezvousTest, StrangersDoNotKeepARankOut) {
  const NodeOptions options = Options({.pipeline = 2}, 2);
  auto zero = *Rendezvous::Begin(options, 0);
  std::vector<net::TcpSocket> strangers;
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    strangers.push_back(*net::TcpSocket::Connect(options.master, 10'000));
    pollfd polled = {.fd = strangers.back().fd(), .events = POLLOUT, .revents = 0};
    ASSERT_EQ(poll(&polled, 1, 10'000), 1);
    std::vector<std::byte> garbage(random() % 100);
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
    if (i % 3 > 0 && !garbage.empty()) (void)strangers.back().Send(garbage);
    if (i % 3 > 1) (void)shutdown(strangers.back().fd(), SHUT_WR);
  }
  std::thread master([&] { EXPECT_TRUE(RunFor(*zero, milliseconds(60'000)).ok()); });
  EXPECT_TRUE(JoinAs(options, 1).ok());
  master.join();
}

// More than rank 0 looks at, which say nothing: the oldest make room.
TEST(RendezvousTest, ManySilentStrangersDoNotKeepARankOut) {
  const NodeOptions options = Options({.pipeline = 2}, 2);
  auto zero = *Rendezvous::Begin(options, 0);
  std::vector<net::TcpSocket> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(*net::TcpSocket::Connect(options.master, 10'000));
    if (i % 50 == 49) (void)RunFor(*zero, milliseconds(0));  // the system keeps no more for it
  }
  Status ended;
  std::thread master([&] { ended = RunFor(*zero, milliseconds(5'000)); });  // a handshake has 10 s
  auto one = *Rendezvous::Begin(options, 1);
  EXPECT_TRUE(RunFor(*one, milliseconds(5'000)).ok());
  master.join();
  EXPECT_TRUE(ended.ok()) << ended.ToString();
}

// Rank 0 has no descriptor for a connection that waits, and sleeps.
TEST(RendezvousTest, WithoutDescriptorsRankZeroSleeps) {
  const NodeOptions options = Options({.pipeline = 2}, 2);
  auto zero = *Rendezvous::Begin(options, 0);
  const auto stranger = *net::TcpSocket::Connect(options.master, 10'000);
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none = {.rlim_cur = 3, .rlim_max = limit.rlim_max};  // which are in use
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::clock_t begin = std::clock();
  const Status status = zero->Run(milliseconds(1000));
  const std::clock_t taken = std::clock() - begin;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_LT(taken, CLOCKS_PER_SEC / 10) << "of a second";
}

// Accepts a connection as rank 0 does, and answers that rank 1 is where no rank can be.
void MisleadOne(net::TcpSocket listener) {
  pollfd polled = {.fd = listener.fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&polled, 1, 30'000), 1);
  net::FrameStream stream(**listener.Accept(10'000), 10'000);
  const net::Secret secret(kSecret);
  net::ServerHandshake handshake(&kJoinProtocol, &secret, [](std::span<const std::byte>) {
    return std::optional<net::Payload>(EncodeReason(""));
  });
  polled.fd = stream.fd();
  while (!handshake.is_done()) {
    ASSERT_EQ(poll(&polled, 1, 30'000), 1);
    const auto frame = stream.Read(kJoinProtocol.MaxBytes(), 0);
    ASSERT_TRUE(frame.ok());
    if (!*frame) continue;
    ASSERT_TRUE(handshake.Take(**frame, &stream).ok());
    ASSERT_TRUE(stream.Flush(0).ok());
  }
  const Start::Place nowhere = {.host = "255.255.255.255", .port = 9};
  stream.Queue(kStart, {Encode(Start{.number = 1, .places = {nowhere, nowhere, nowhere}})});
  ASSERT_TRUE(stream.Flush(0).ok());
  (void)poll(&polled, 1, 30'000);  // until it has ended
}

TEST(RendezvousTest, ARankThatCannotBeReachedIsFinal) {
  const NodeOptions options = Options({.pipeline = 3}, 3);
  std::thread master(MisleadOne, *net::TcpSocket::Listen(options.master));
  {
    auto two = *Rendezvous::Begin(options, 2);
    const Status status = RunFor(*two, milliseconds(30'000));
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
    EXPECT_NE(status.message().find("rank 1 (node 1) cannot be joined: "), std::string::npos);
  }
  master.join();
}

TEST(RendezvousTest, WhatIsNoMasterIsNamed) {
  const NodeOptions options = Options({.pipeline = 2}, 2);
  net::TcpSocket listener = *net::TcpSocket::Listen(options.master);
  auto one = *Rendezvous::Begin(options, 1);
  Status status;
  std::thread joins([&] { status = RunFor(*one, milliseconds(30'000)); });
  pollfd polled = {.fd = listener.fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&polled, 1, 30'000), 1);
  std::optional<net::TcpSocket> socket = *listener.Accept(10'000);
  const char answer[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
  (void)socket->Send(std::as_bytes(std::span(answer)));
  joins.join();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
}

TEST(NodeOptionsTest, AreValidated) {
  const auto message = [](const std::function<void(NodeOptions*)>& change) {
    NodeOptions options = Options({.pipeline = 2, .tensor = 2}, 2);
    EXPECT_TRUE(options.Validate().ok());
    change(&options);
    return options.Validate().message();
  };
  EXPECT_NE(message([](NodeOptions* o) { o->num_nodes = 3; }).find("num_nodes is 3"),
            std::string::npos);
  EXPECT_NE(message([](NodeOptions* o) { o->secret = "short"; }).find("at least 16"),
            std::string::npos);
  const auto elsewhere = *net::NetAddress::Parse("10.0.0.7:29501");
  const auto open = message([&](NodeOptions* o) {
    o->secret = "";
    o->master = elsewhere;
  });
  EXPECT_NE(open.find("need a secret"), std::string::npos);
  EXPECT_EQ(message([](NodeOptions* o) { o->secret = ""; }), "");
}

}  // namespace
}  // namespace pagemill::comm
