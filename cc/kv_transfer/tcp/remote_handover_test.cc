// Two workers that exchange KV by TCP, and what else may be at either end of a connection.
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/kv_transfer/block_record.h"
#include "cc/kv_transfer/handover_test_engine.h"
#include "cc/kv_transfer/tcp/peer_handshake.h"
#include "cc/kv_transfer/tcp/peer_messages.h"
#include "cc/kv_transfer/tcp/segment_server.h"
#include "cc/net/frame_stream.h"
#include "gtest/gtest.h"

namespace pagemill::kv_transfer {
namespace {

using kv_cache::KvTransferResult;
using kv_cache::TransferId;

// That of TestEngine.
constexpr SegmentFormat kFormat = {.fingerprint = {.low = 1, .high = 2},
                                   .page_bytes = kTestPageBytes};
const std::string kEngineId(32, 'a');

// Waits until a stream has a frame, or is over.
StatusOr<net::Frame> WaitForFrame(net::FrameStream* stream) {
  for (int i = 0; i < 3000; ++i) {
    PAGEMILL_RETURN_IF_ERROR(stream->Flush(0));
    PAGEMILL_ASSIGN_OR_RETURN(const std::optional<net::Frame> frame, stream->Read(1 << 20, 0));
    if (frame) return *frame;
    pollfd polled = {.fd = stream->fd(), .events = POLLIN, .revents = 0};
    (void)poll(&polled, 1, 10);
  }
  return Status(StatusCode::kDeadlineExceeded, "no frame came");
}

// What a test does in place of an engine that loads.
struct FakeClient {
  explicit FakeClient(const net::NetAddress& address, std::string secret = "what both engines know")
      : secret(secret), stream(*net::TcpSocket::Connect(address, 10'000), 10'000) {}
  Status Greet() {
    net::ClientHandshake handshake = LoaderHandshake(&secret, kFormat);
    PAGEMILL_RETURN_IF_ERROR(handshake.Start(&stream));
    while (!handshake.is_done()) {
      PAGEMILL_ASSIGN_OR_RETURN(const net::Frame frame, WaitForFrame(&stream));
      PAGEMILL_RETURN_IF_ERROR(handshake.Take(frame, &stream));
    }
    return OkStatus();
  }
  // Sends what the socket takes.
  void SendRaw(const std::vector<std::byte>& bytes) {
    pollfd polled = {.fd = stream.fd(), .events = POLLOUT, .revents = 0};
    (void)poll(&polled, 1, 1000);
    (void)send(stream.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // True if the server closes the connection, whatever it sends before.
  bool IsClosed() {
    while (true) {
      StatusOr<net::Frame> frame = WaitForFrame(&stream);
      if (!frame.ok()) return frame.status().code() == StatusCode::kUnavailable;
    }
  }

  const net::Secret secret;
  net::FrameStream stream;
};

// What a test does in place of an engine that has KV.
struct FakeServer {
  net::NetAddress address() const { return *listener.address(); }
  kv_cache::Handover Handover() const {
    return {.peer = kEngineId,
            .number = 1,
            .host = address().host(),
            .port = std::to_string(address().port())};
  }
  void Accept() {
    pollfd polled = {.fd = listener.fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&polled, 1, 30'000), 1);
    auto socket = listener.Accept(10'000);
    ASSERT_TRUE(socket.ok() && *socket);
    stream = std::make_unique<net::FrameStream>(**std::move(socket), 10'000);
  }
  void Greet() {
    Accept();
    net::ServerHandshake handshake = OwnerHandshake(&secret, kFormat, kEngineId);
    while (!handshake.is_done()) {
      StatusOr<net::Frame> frame = WaitForFrame(stream.get());
      ASSERT_TRUE(frame.ok()) << frame.status().ToString();
      ASSERT_EQ(handshake.Take(*frame, stream.get()), OkStatus());
    }
    ASSERT_EQ(stream->Flush(0), OkStatus());
  }
  Fetch WaitForFetch() {
    StatusOr<net::Frame> frame = WaitForFrame(stream.get());
    EXPECT_TRUE(frame.ok()) << frame.status().ToString();
    return DecodeFetch(frame->payload).value_or(Fetch());
  }
  // Block `index` of a fetch, as a frame.
  static std::vector<std::byte> Record(const Fetch& fetch, size_t index) {
    const std::vector<std::byte> page(kTestPageBytes, std::byte{77});
    std::vector<std::byte> record(kRecordHeaderBytes);
    const kv_cache::ContentKey& key = fetch.keys[index];
    EncodeRecordHeader({kFormat.fingerprint, key.hash, key.group}, page, record);
    record.insert(record.end(), page.begin(), page.end());
    return record;
  }
  void SendBlock(uint64_t id, const std::vector<std::byte>& record) {
    stream->Queue(kBlock, {EncodeCancel(id), record});
    ASSERT_EQ(stream->Flush(0), OkStatus());
  }

  const net::Secret secret{"what both engines know"};
  net::TcpSocket listener = *net::TcpSocket::Listen(*net::NetAddress::Parse("127.0.0.1:0"));
  std::unique_ptr<net::FrameStream> stream;
};

// An engine that listens, and one that loads from it.
struct RemoteHandover : testing::Test {
  void ExpectServes(uint64_t number = 1) {
    sender.Send(number, 0, 5);
    EXPECT_EQ(sender.Wait().status, OkStatus());
    receiver.Load(7, sender.Handover(number), 2, 5, /*page=*/20);
    const KvTransferResult result = receiver.Wait();
    EXPECT_EQ(result.status, OkStatus());
    EXPECT_EQ(result.num_blocks_done, 3);
    EXPECT_EQ(receiver.Value(20), 3);
    EXPECT_EQ(receiver.Value(22), 5);
  }

  TestEngine sender{{.num_slots = 8, .listens = true}};
  TestEngine receiver{{.num_slots = 2, .peers = {sender.address()}}};
};

TEST_F(RemoteHandover, BlocksComeAsTheyWereSent) {
  for (uint64_t number = 1; number < 4; ++number) ExpectServes(number);
}

TEST_F(RemoteHandover, ALoadWaitsForWhatIsNotSentYetAndHindersNoOther) {
  receiver.Load(1, sender.Handover(2), 0, 3);
  EXPECT_FALSE(receiver.HasResult());
  sender.Send(1, 10, 12, 10);
  EXPECT_EQ(sender.Wait().status, OkStatus());
  receiver.Load(2, sender.Handover(1), 10, 12, 10);
  EXPECT_EQ(receiver.Wait().id, TransferId(2));
  sender.Send(2, 0, 3);
  EXPECT_EQ(receiver.Wait().status, OkStatus());
  EXPECT_EQ(receiver.Value(3), 3);
}

TEST_F(RemoteHandover, MoreBlocksThanRoomPassThroughOneAfterAnother) {
  TestEngine small({.num_slots = 2, .listens = true});
  TestEngine loads({.num_slots = 2, .peers = {small.address()}});
  small.Send(1, 0, 20);
  EXPECT_FALSE(small.HasResult()) << "the blocks are held";
  loads.Load(7, small.Handover(1), 10, 20);  // it has the first ones
  EXPECT_EQ(loads.Wait().status, OkStatus());
  EXPECT_EQ(small.Wait().num_blocks_done, 20);
  EXPECT_EQ(loads.Value(10), 20);
  small.Send(2, 30, 32);
  EXPECT_EQ(small.Wait().status, OkStatus()) << "nothing is left of the first one";
}

TEST_F(RemoteHandover, WhatDoesNotComeIsNotWaitedFor) {
  sender.Send(1, 0, 2);
  EXPECT_EQ(sender.Wait().status, OkStatus());
  receiver.Load(1, sender.Handover(1), 0, 3);
  const KvTransferResult result = receiver.Wait();
  EXPECT_EQ(result.status.code(), StatusCode::kNotFound) << "the handover is done";
  EXPECT_EQ(result.num_blocks_done, 2);
  kv_cache::Handover earlier = sender.Handover(1);
  earlier.peer = kEngineId;
  receiver.Load(2, earlier, 0, 2);
  EXPECT_EQ(receiver.Wait().status.code(), StatusCode::kNotFound) << "it was started again";
  receiver.Load(3, sender.Handover(99), 50, 52);
  EXPECT_FALSE(receiver.HasResult());
  receiver.worker->Abandon(TransferId(3));
  EXPECT_EQ(receiver.Wait().status.code(), StatusCode::kUnavailable);
  sender.worker->Start(
      {.id = TransferId(5), .direction = kv_cache::KvTransfer::Direction::kForget});
  EXPECT_EQ(sender.Wait().status, OkStatus());
  receiver.Load(4, sender.Handover(1), 0, 2);
  EXPECT_EQ(receiver.Wait().status.code(), StatusCode::kNotFound) << "it was forgotten";
  const kv_cache::Handover last = sender.Handover(1);
  sender.worker.reset();
  receiver.Load(5, last, 0, 2);
  EXPECT_EQ(receiver.Wait().status.code(), StatusCode::kUnavailable) << "nothing listens";
}

TEST_F(RemoteHandover, EnginesThatDoNotFitTogetherRefuseOneAnother) {
  sender.Send(1, 0, 2);
  EXPECT_EQ(sender.Wait().status, OkStatus());
  TestEngine stranger({.peers = {sender.address()}, .secret = "what another engine knows"});
  stranger.Load(1, sender.Handover(1), 0, 2);
  Status status = stranger.Wait().status;
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("--kv-transfer-secret-file"), std::string::npos);
  TestEngine other({.fingerprint = 9, .peers = {sender.address()}});
  other.Load(1, sender.Handover(1), 0, 2);
  status = other.Wait().status;
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("another model or layout"), std::string::npos);
  EXPECT_EQ(stranger.Value(1) + other.Value(1), 0);
  ExpectServes(2);
}

TEST_F(RemoteHandover, AServerThatDoesNotKnowTheSecretIsRefused) {
  FakeServer server;
  TestEngine loads({.peers = {server.address()}, .secret = "what another engine knows"});
  loads.Load(1, server.Handover(), 0, 2);
  server.Accept();
  ASSERT_TRUE(WaitForFrame(server.stream.get()).ok());
  server.stream->Queue(net::kChallenge, {Encode(net::Greeting{.magic = {}, .nonce = {}})});
  ASSERT_EQ(server.stream->Flush(0), OkStatus());
  EXPECT_EQ(loads.Wait().status.code(), StatusCode::kFailedPrecondition) << "another version";

  loads.Load(2, server.Handover(), 0, 2);
  server.Accept();
  ASSERT_TRUE(WaitForFrame(server.stream.get()).ok());
  net::Greeting greeting;
  std::memcpy(greeting.magic.data(), kPeerProtocol.magic.data(), greeting.magic.size());
  server.stream->Queue(net::kChallenge, {Encode(greeting)});
  ASSERT_TRUE(WaitForFrame(server.stream.get()).ok());
  server.stream->Queue(net::kWelcome, {std::vector<std::byte>(64)});  // and no proof
  ASSERT_EQ(server.stream->Flush(0), OkStatus());
  EXPECT_EQ(loads.Wait().status.code(), StatusCode::kFailedPrecondition);
}

TEST_F(RemoteHandover, OnlyListedAddressesAreConnectedTo) {
  FakeServer elsewhere;
  receiver.Load(1, elsewhere.Handover(), 0, 2);
  const Status status = receiver.Wait().status;
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("--kv-transfer-peers"), std::string::npos) << status.message();
  kv_cache::Handover odd = elsewhere.Handover();
  odd.host = "localhost";
  receiver.Load(2, odd, 0, 2);
  EXPECT_EQ(receiver.Wait().status.code(), StatusCode::kNotFound);
  const auto connected = elsewhere.listener.Accept(1000);
  EXPECT_TRUE(connected.ok() && !*connected) << "no connection was made";
  // The engine is on this machine: it is found there.
  TestEngine local({.num_slots = 2});
  sender.Send(1, 0, 2);
  EXPECT_EQ(sender.Wait().status, OkStatus());
  local.Load(1, sender.Handover(1), 0, 2);
  EXPECT_EQ(local.Wait().status, OkStatus());
}

TEST_F(RemoteHandover, GarbageCostsAConnection) {
  std::mt19937 random(5);
  const auto bytes = [&random](size_t size) {
    std::vector<std::byte> made(size);
    for (std::byte& byte : made) byte = static_cast<std::byte>(random());
    return made;
  };
  for (int i = 0; i < 400; ++i) {
    FakeClient client(sender.address());
    // Half of them get past the handshake, and most have a plausible head.
    if (i % 2 == 0) {
      ASSERT_EQ(client.Greet(), OkStatus());
    }
    if (i % 3 == 0) {
      client.SendRaw(bytes(1 + random() % 200));
    } else {
      client.stream.Queue(random() % 11, {bytes(1 + random() % 120)});
      (void)client.stream.Flush(0);
    }
    if (i % 50 == 0) {
      client.SendRaw(bytes(4096));
      EXPECT_TRUE(client.IsClosed());
    }
  }
  ExpectServes();
}

TEST_F(RemoteHandover, ConnectionsAreBounded) {
  std::list<FakeClient> clients;
  for (size_t i = 0; i < SegmentServer::kMaxSessions; ++i) {
    clients.emplace_back(sender.address());
    ASSERT_EQ(clients.back().Greet(), OkStatus());
  }
  FakeClient one_more(sender.address());
  EXPECT_FALSE(one_more.Greet().ok());
  clients.pop_front();
  FakeClient next(sender.address());
  Status greeted = next.Greet();
  for (int i = 0; i < 100 && !greeted.ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    greeted = FakeClient(sender.address()).Greet();
  }
  EXPECT_EQ(greeted, OkStatus());
}

TEST_F(RemoteHandover, ConnectionsWithoutTheSecretKeepNobodyOut) {
  std::list<FakeClient> silent;
  for (size_t i = 0; i < 2 * SegmentServer::kMaxSessions; ++i) {
    silent.emplace_back(sender.address());
  }
  FakeClient client(sender.address());
  EXPECT_EQ(client.Greet(), OkStatus());
  EXPECT_TRUE(silent.front().IsClosed());
  ExpectServes();
}

TEST_F(RemoteHandover, FetchesOfAConnectionAreBounded) {
  FakeClient client(sender.address());
  ASSERT_EQ(client.Greet(), OkStatus());
  for (uint64_t id = 1; id <= 257; ++id) {
    client.stream.Queue(kFetch, {Encode(Fetch{.id = id, .number = 99, .keys = {{}}})});
  }
  StatusOr<net::Frame> frame = WaitForFrame(&client.stream);
  ASSERT_TRUE(frame.ok());
  const std::optional<EndOfFetch> end = DecodeEnd(frame->payload);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->id, 257u);
  EXPECT_EQ(end->code, StatusCode::kResourceExhausted);
  client.stream.Queue(kFetch, {Encode(Fetch{.id = 1, .number = 99, .keys = {{}}})});
  EXPECT_FALSE(WaitForFrame(&client.stream).ok()) << "the same id again";
}

TEST_F(RemoteHandover, AClientThatReadsNothingIsNotWaitedFor) {
  TestEngine strict({.listens = true, .timeout_ms = 1000});
  FakeClient client(strict.address());
  ASSERT_EQ(client.Greet(), OkStatus());
  uint64_t id = 0;
  Status status;
  for (int i = 0; i < 30'000 && status.ok(); ++i) {
    while (client.stream.num_queued_bytes() < (1 << 16)) {
      client.stream.Queue(kFetch, {Encode(Fetch{.id = ++id, .number = 99, .keys = {}})});
    }
    status = client.stream.Flush(0);
    pollfd polled = {.fd = client.stream.fd(), .events = POLLOUT, .revents = 0};
    (void)poll(&polled, 1, 1);
  }
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << "the server has closed the connection";
}

TEST_F(RemoteHandover, AHandshakeThatTakesTooLongIsOver) {
  TestEngine strict({.listens = true, .timeout_ms = 50});
  FakeClient silent(strict.address());
  EXPECT_TRUE(silent.IsClosed());

  FakeServer server;
  TestEngine loads({.peers = {server.address()}, .timeout_ms = 50});
  loads.Load(1, server.Handover(), 0, 2);
  EXPECT_EQ(loads.Wait().status.code(), StatusCode::kDeadlineExceeded);
}

TEST_F(RemoteHandover, APeerThatHangsOrDiesInABlockIsNotWaitedFor) {
  for (const bool dies : {false, true}) {
    FakeServer server;
    TestEngine loads({.peers = {server.address()}, .timeout_ms = 3000});
    loads.Load(1, server.Handover(), 0, 3);
    loads.Load(2, server.Handover(), 5, 8, 10);
    server.Greet();
    const Fetch first = server.WaitForFetch();
    server.SendBlock(1, FakeServer::Record(first, 0));
    const std::vector<std::byte> half(40, std::byte{0x60});  // the head says that more comes
    std::vector<std::byte> head = {
        std::byte{168}, {}, {}, {}, static_cast<std::byte>(kBlock), {}, {}, {}};
    head.insert(head.end(), half.begin(), half.end());
    ASSERT_EQ(send(server.stream->fd(), head.data(), head.size(), MSG_NOSIGNAL), 48);
    if (dies) server.stream.reset();
    std::vector<KvTransferResult> results;
    for (int i = 0; i < 30 && results.size() < 2; ++i) {
      loads.worker->Wait(1'000'000);
      loads.worker->Poll(&results);
    }
    ASSERT_EQ(results.size(), 2u);
    const StatusCode code = dies ? StatusCode::kUnavailable : StatusCode::kDeadlineExceeded;
    EXPECT_EQ(results[0].status.code(), code) << results[0].status.ToString();
    EXPECT_EQ(results[0].num_blocks_done, 1);
    EXPECT_EQ(results[1].status.code(), code);
    EXPECT_EQ(loads.Value(1), 77);
    EXPECT_EQ(loads.Value(2), 0);
  }
}

TEST_F(RemoteHandover, DamagedBlocksEndTheirLoadAndNoOther) {
  FakeServer server;
  TestEngine loads({.peers = {server.address()}});
  loads.Load(1, server.Handover(), 0, 2);
  server.Greet();
  const Fetch first = server.WaitForFetch();
  loads.Load(2, server.Handover(), 5, 7, 10);
  const Fetch second = server.WaitForFetch();
  std::vector<std::byte> record = FakeServer::Record(first, 0);
  record.back() ^= std::byte{1};
  server.SendBlock(1, record);
  const KvTransferResult damaged = loads.Wait();
  EXPECT_EQ(damaged.id, TransferId(1));
  EXPECT_EQ(damaged.status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(loads.Value(1), 0);
  server.SendBlock(1, FakeServer::Record(first, 0));  // of a load that is over
  server.SendBlock(2, FakeServer::Record(second, 0));
  server.SendBlock(2, FakeServer::Record(second, 1));
  EXPECT_EQ(loads.Wait().status, OkStatus());
  EXPECT_EQ(loads.Value(1), 0);
  EXPECT_EQ(loads.Value(11), 77);
}

}  // namespace
}  // namespace pagemill::kv_transfer
