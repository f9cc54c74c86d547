#include "cc/net/frame_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::net {
namespace {

constexpr int64_t kTimeoutMs = 100;

struct Pair : testing::Test {
  Pair() {
    TcpSocket listener = *TcpSocket::Listen(*NetAddress::Parse("127.0.0.1:0"));
    a = std::make_unique<FrameStream>(*TcpSocket::Connect(*listener.address(), 10'000), kTimeoutMs);
    pollfd polled = {.fd = listener.fd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&polled, 1, 10'000), 1);
    b = std::make_unique<FrameStream>(**listener.Accept(10'000), kTimeoutMs);
  }
  static std::vector<std::byte> Bytes(size_t size) {
    return std::vector<std::byte>(size, std::byte{5});
  }
  void WaitUntilReadable(FrameStream* stream) {
    pollfd polled = {.fd = stream->fd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&polled, 1, 10'000), 1);
  }

  std::unique_ptr<FrameStream> a, b;
};

TEST_F(Pair, FramesComeInOrder) {
  const std::vector<std::byte> large = Bytes(4 << 20);
  a->Queue(7, {Bytes(3), Bytes(2)});
  a->Queue(8, {large});
  std::vector<std::pair<uint32_t, size_t>> came;
  while (came.size() < 2) {
    ASSERT_EQ(a->Flush(0), OkStatus());
    StatusOr<std::optional<Frame>> frame = b->Read(large.size(), 0);
    ASSERT_TRUE(frame.ok());
    if (*frame) came.emplace_back((*frame)->type, (*frame)->payload.size());
  }
  EXPECT_EQ(came[0], std::make_pair(7u, size_t{5}));
  EXPECT_EQ(came[1], std::make_pair(8u, large.size()));
  EXPECT_EQ(a->num_queued_bytes(), 0u);
  EXPECT_EQ(a->events(), POLLIN);
}

TEST_F(Pair, AFrameOfTooManyBytesIsRefused) {
  a->Queue(7, {Bytes(65)});
  ASSERT_EQ(a->Flush(0), OkStatus());
  WaitUntilReadable(b.get());
  EXPECT_EQ(b->Read(64, 0).status().code(), StatusCode::kDataLoss);
}

TEST_F(Pair, AFrameWithoutBytesIsRefused) {
  a->Queue(7, {});
  ASSERT_EQ(a->Flush(0), OkStatus());
  WaitUntilReadable(b.get());
  EXPECT_EQ(b->Read(64, 0).status().code(), StatusCode::kDataLoss);
}

TEST_F(Pair, AFrameThatBeginsAndDoesNotEndIsNotWaitedFor) {
  EXPECT_TRUE(b->Read(64, 0).ok());
  EXPECT_TRUE(b->Read(64, 1'000'000).ok()) << "nothing has begun";
  const std::string half = "abc";
  ASSERT_EQ(send(a->fd(), half.data(), half.size(), 0), 3);
  WaitUntilReadable(b.get());
  EXPECT_TRUE(b->Read(64, 1'000'000).ok());
  EXPECT_TRUE(b->Read(64, 1'000'000 + kTimeoutMs).ok());
  EXPECT_EQ(b->Read(64, 1'000'001 + kTimeoutMs).status().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(Pair, AReaderThatDoesNotReadIsNotWaitedFor) {
  a->Queue(7, {Bytes(64 << 20)});
  EXPECT_EQ(a->Flush(0), OkStatus());
  EXPECT_EQ(a->events(), POLLIN | POLLOUT);
  EXPECT_EQ(a->Flush(kTimeoutMs), OkStatus());
  EXPECT_EQ(a->Flush(kTimeoutMs + 1).code(), StatusCode::kDeadlineExceeded);
}

TEST_F(Pair, AClosedConnectionIsOver) {
  b.reset();
  WaitUntilReadable(a.get());
  EXPECT_EQ(a->Read(64, 0).status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace pagemill::net
