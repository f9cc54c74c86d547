// File: cc/net/frame_stream.h
// Frames over a socket that does not block: a type, a size and so many bytes. Numbers are little
// endian.
//
//   FrameStream stream(std::move(socket), timeout_ms);
//   stream.Queue(FrameType::kFetch, {bytes});
//   ... poll stream.fd() for stream.events() ...
//   PAGEMILL_RETURN_IF_ERROR(stream.Flush(now_ms));
//   PAGEMILL_ASSIGN_OR_RETURN(std::optional<Frame> frame, stream.Read(/*max_bytes=*/64, now_ms));
//
// A frame that has begun to come is complete after `timeout_ms`, and what is queued is sent, or the
// stream fails: neither a silent peer nor one that reads or writes a byte now and then keeps
// anything for longer. `now_ms` are of a clock that does not go back. Thread safety: none.
#ifndef PAGEMILL_CC_NET_FRAME_STREAM_H_
#define PAGEMILL_CC_NET_FRAME_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/net/tcp_socket.h"

namespace pagemill::net {

struct Frame {
  uint32_t type = 0;                        // of any value
  std::span<const std::byte> payload = {};  // until the next Read()
};

class FrameStream {
 public:
  FrameStream(TcpSocket socket, int64_t timeout_ms)
      : socket_(std::move(socket)), timeout_ms_(timeout_ms) {}

  int fd() const { return socket_.fd(); }
  const TcpSocket& socket() const { return socket_; }
  // Ends the frames: the socket is at the first byte behind the last one that Read() returned.
  TcpSocket TakeSocket() && { return std::move(socket_); }
  // To poll for.
  short events() const;  // NOLINT(google-runtime-int): the type of pollfd::events
  size_t num_queued_bytes() const { return queued_.size() - num_sent_; }

  // Appends a frame whose payload is `parts`, one after another.
  void Queue(uint32_t type, std::initializer_list<std::span<const std::byte>> parts);
  // Sends what the socket takes now. kUnavailable if the connection is over, kDeadlineExceeded if
  // it takes too long.
  Status Flush(int64_t now_ms);
  // The next frame; empty if it is not complete yet. Errors as of Flush(), and kDataLoss if it has
  // more than `max_bytes`, of which none are read.
  StatusOr<std::optional<Frame>> Read(size_t max_bytes, int64_t now_ms);

 private:
  static constexpr size_t kHeadBytes = 8;

  TcpSocket socket_;
  const int64_t timeout_ms_;

  std::vector<std::byte> queued_;
  size_t num_sent_ = 0;                    // of queued_
  std::optional<int64_t> queued_ms_ = {};  // the first Flush() since it was empty

  std::vector<std::byte> frame_ = std::vector<std::byte>(kHeadBytes);  // as large as the largest
  size_t frame_bytes_ = kHeadBytes;       // head and payload; of the head only until it is there
  size_t num_received_ = 0;               // of frame_bytes_
  std::optional<int64_t> begun_ms_ = {};  // when the first byte came
};

}  // namespace pagemill::net

#endif  // PAGEMILL_CC_NET_FRAME_STREAM_H_
