// File: cc/net/tcp_socket.h
// RAII sockets of TCP that never block: a call does what it can do now. The caller polls fd().
//
//   PAGEMILL_ASSIGN_OR_RETURN(TcpSocket listener, TcpSocket::Listen(address));
//   PAGEMILL_ASSIGN_OR_RETURN(std::optional<TcpSocket> peer, listener.Accept(timeout_ms));
//   PAGEMILL_ASSIGN_OR_RETURN(TcpSocket socket, TcpSocket::Connect(address, timeout_ms));
//   PAGEMILL_ASSIGN_OR_RETURN(size_t sent, socket.Send(bytes));  // 0 while it is not connected
//
// Thread safety: none.
#ifndef PAGEMILL_CC_NET_TCP_SOCKET_H_
#define PAGEMILL_CC_NET_TCP_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "cc/base/status.h"
#include "cc/net/net_address.h"

namespace pagemill::net {

class TcpSocket {
 public:
  // kInvalidArgument if this machine does not have the address, kFailedPrecondition if it is in
  // use. Port 0: any that is free.
  static StatusOr<TcpSocket> Listen(const NetAddress& address);
  // Begins to connect. `timeout_ms`: bytes that the other machine does not acknowledge for so long
  // end the connection, as do probes while nothing is sent (after about twice the time).
  static StatusOr<TcpSocket> Connect(const NetAddress& address, int64_t timeout_ms);
  ~TcpSocket();
  TcpSocket(TcpSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  TcpSocket& operator=(TcpSocket&&) = delete;

  int fd() const { return fd_; }
  // Of this end, and of the other one.
  StatusOr<NetAddress> address() const;
  StatusOr<NetAddress> peer_address() const;
  // A connection that waits, if there is one. kResourceExhausted if it cannot be taken, and waits
  // on.
  StatusOr<std::optional<TcpSocket>> Accept(int64_t timeout_ms);
  // The number of bytes that were taken, or that came: 0 if none can now. kUnavailable if the
  // connection is over or was refused.
  StatusOr<size_t> Send(std::span<const std::byte> bytes) { return Send(bytes, {}); }
  StatusOr<size_t> Receive(std::span<std::byte> to) { return Receive(to, {}); }
  // Likewise of two pieces, one behind the other.
  StatusOr<size_t> Send(std::span<const std::byte> first, std::span<const std::byte> second);
  StatusOr<size_t> Receive(std::span<std::byte> first, std::span<std::byte> second);
  // Ends the connection for both sides; what has been sent still arrives. From any thread, also
  // while another one polls fd().
  void ShutDown();

 private:
  explicit TcpSocket(int fd) : fd_(fd) {}
  void SetOptions(int64_t timeout_ms);

  int fd_;
};

}  // namespace pagemill::net

#endif  // PAGEMILL_CC_NET_TCP_SOCKET_H_
