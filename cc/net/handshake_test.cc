#include "cc/net/handshake.h"

#include <poll.h>

#include <random>
#include <utility>

#include "cc/net/net_address.h"
#include "cc/net/tcp_socket.h"
#include "gtest/gtest.h"

namespace pagemill::net {
namespace {

const Protocol kProtocol = {.magic = {'T', 'E', 'S', 'T', 'T', 'C', 'P', '1'},
                            .name = "test",
                            .claim_bytes = 3,
                            .answer_bytes = 2,
                            .other_version = "version",
                            .other_secret = "secret",
                            .refused_claim = "claim",
                            .stranger = "stranger",
                            .misunderstood = "misunderstood"};
const Payload kClaim(3, std::byte{7});
const Payload kAnswer(2, std::byte{8});

// The two ends of a connection, and a side of a handshake at each.
class HandshakeTest : public testing::Test {
 protected:
  HandshakeTest() {
    const TcpSocket listener = *TcpSocket::Listen(*NetAddress::Parse("127.0.0.1:0"));
    client_ =
        std::make_unique<FrameStream>(*TcpSocket::Connect(*listener.address(), 10'000), 10'000);
    pollfd polled = {.fd = listener.fd(), .events = POLLIN, .revents = 0};
    (void)poll(&polled, 1, 30'000);
    auto accepted = const_cast<TcpSocket&>(listener).Accept(10'000);
    server_ = std::make_unique<FrameStream>(**std::move(accepted), 10'000);
  }

  static Frame WaitForFrame(FrameStream* from, FrameStream* to) {
    for (int i = 0; i < 3000; ++i) {
      EXPECT_TRUE(from->Flush(0).ok());
      const auto frame = to->Read(1 << 16, 0);
      if (frame.ok() && *frame) return **frame;
      pollfd polled = {.fd = to->fd(), .events = POLLIN, .revents = 0};
      (void)poll(&polled, 1, 10);
    }
    ADD_FAILURE() << "no frame came";
    return {};
  }
  Frame AtServer() { return WaitForFrame(client_.get(), server_.get()); }
  Frame AtClient() { return WaitForFrame(server_.get(), client_.get()); }

  // Runs both sides to the end; what the client and the server say of it.
  std::pair<Status, Status> Run(ClientHandshake& client, ServerHandshake& server) {
    EXPECT_TRUE(client.Start(client_.get()).ok());
    Status at_server, at_client;
    while (at_client.ok() && !client.is_done()) {
      if (at_server.ok()) at_server = server.Take(AtServer(), server_.get());
      at_client = client.Take(AtClient(), client_.get());
    }
    return {at_client, at_server};
  }

  const Secret secret_{"what both sides know"};
  std::unique_ptr<FrameStream> client_, server_;
};

std::optional<Payload> Answer(std::span<const std::byte> claim) {
  if (claim[0] == std::byte{0}) return std::nullopt;
  return kAnswer;
}

TEST_F(HandshakeTest, SidesWithOneSecretLearnClaimAndAnswer) {
  ClientHandshake client(&kProtocol, &secret_, kClaim);
  Payload claimed;
  ServerHandshake server(&kProtocol, &secret_, [&](std::span<const std::byte> claim) {
    claimed.assign(claim.begin(), claim.end());
    return Answer(claim);
  });
  const auto [at_client, at_server] = Run(client, server);
  EXPECT_EQ(at_client, OkStatus());
  EXPECT_EQ(at_server, OkStatus());
  EXPECT_TRUE(server.is_done());
  EXPECT_EQ(claimed, kClaim);
  EXPECT_EQ(client.answer(), kAnswer);
}

TEST_F(HandshakeTest, AClientWithAnotherSecretLearnsNothing) {
  const Secret other("what one side knows");
  ClientHandshake client(&kProtocol, &other, kClaim);
  ServerHandshake server(&kProtocol, &secret_, [](std::span<const std::byte>) {
    ADD_FAILURE() << "it was asked";
    return std::optional<Payload>(kAnswer);
  });
  const auto [at_client, at_server] = Run(client, server);
  EXPECT_EQ(at_client, FailedPrecondition("secret"));
  EXPECT_EQ(at_server, FailedPrecondition("secret"));
}

TEST_F(HandshakeTest, ARefusedClaimIsAnError) {
  ClientHandshake client(&kProtocol, &secret_, Payload(3));
  ServerHandshake server(&kProtocol, &secret_, Answer);
  const auto [at_client, at_server] = Run(client, server);
  EXPECT_EQ(at_client, FailedPrecondition("claim"));
  EXPECT_EQ(at_server, FailedPrecondition("claim"));
}

TEST_F(HandshakeTest, AnotherVersionIsRefused) {
  Protocol newer = kProtocol;
  newer.magic[7] = '2';
  ClientHandshake client(&newer, &secret_, kClaim);
  ServerHandshake server(&kProtocol, &secret_, Answer);
  const auto [at_client, at_server] = Run(client, server);
  EXPECT_EQ(at_client, FailedPrecondition("version"));
  EXPECT_EQ(at_server, FailedPrecondition("version"));
}

TEST_F(HandshakeTest, AProofOfAnotherHandshakeIsNone) {
  ClientHandshake client(&kProtocol, &secret_, kClaim);
  ServerHandshake first(&kProtocol, &secret_, Answer), second(&kProtocol, &secret_, Answer);
  ASSERT_TRUE(client.Start(client_.get()).ok());
  const Frame hello = AtServer();
  const Payload greeting(hello.payload.begin(), hello.payload.end());
  ASSERT_TRUE(first.Take(hello, server_.get()).ok());
  ASSERT_TRUE(client.Take(AtClient(), client_.get()).ok());
  ASSERT_TRUE(second.Take({.type = kHello, .payload = greeting}, server_.get()).ok());
  EXPECT_EQ(second.Take(AtServer(), server_.get()), FailedPrecondition("secret"));
}

TEST_F(HandshakeTest, OtherMessagesAreRefused) {
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    Payload payload(random() % 80);
    for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
    const Frame frame = {.type = static_cast<uint32_t>(random() % 7), .payload = payload};
    ServerHandshake server(&kProtocol, &secret_, Answer);
    EXPECT_FALSE(server.Take(frame, server_.get()).ok());
    ClientHandshake client(&kProtocol, &secret_, kClaim);
    EXPECT_FALSE(client.Take(frame, client_.get()).ok());
  }
}

TEST_F(HandshakeTest, PayloadsFitTheirBound) {
  EXPECT_LE(Encode(Greeting()).size(), kProtocol.MaxBytes());
  EXPECT_LE(Encode(Refusal::kClaim).size(), kProtocol.MaxBytes());
  EXPECT_GE(kProtocol.MaxBytes(), kProtocol.claim_bytes + sizeof(Digest256));
}

}  // namespace
}  // namespace pagemill::net
