#include "cc/net/tcp_socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>

namespace pagemill::net {
namespace {

constexpr int kBacklog = 64;
constexpr int64_t kMaxProbeS = 32'767;  // of the system

StatusOr<int> NewSocket(int family) {
  const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd >= 0) return fd;
  return ResourceExhausted(std::string("no socket can be opened: ") + std::strerror(errno));
}

bool IsOnlyLater(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

Status ConnectionOver(int error) {
  return Unavailable(std::string("the connection is over: ") + std::strerror(error));
}

}  // namespace

StatusOr<TcpSocket> TcpSocket::Listen(const NetAddress& address) {
  PAGEMILL_ASSIGN_OR_RETURN(const int fd, NewSocket(address.family()));
  TcpSocket made(fd);
  const int on = 1;
  (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage to;
  const socklen_t size = address.ToSocket(&to);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&to), size) != 0 || listen(fd, kBacklog) != 0) {
    const std::string why = address.ToString() + ": " + std::strerror(errno);
    return errno == EADDRINUSE ? FailedPrecondition(why) : InvalidArgument(why);
  }
  return made;
}

StatusOr<TcpSocket> TcpSocket::Connect(const NetAddress& address, int64_t timeout_ms) {
  PAGEMILL_ASSIGN_OR_RETURN(const int fd, NewSocket(address.family()));
  TcpSocket made(fd);
  made.SetOptions(timeout_ms);
  sockaddr_storage to;
  const socklen_t size = address.ToSocket(&to);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), size) != 0 && errno != EINPROGRESS) {
    return ConnectionOver(errno);
  }
  return made;
}

TcpSocket::~TcpSocket() {
  if (fd_ >= 0) close(fd_);
}

void TcpSocket::SetOptions(int64_t timeout_ms) {
  const int on = 1;
  (void)setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const auto most = static_cast<unsigned>(std::min<int64_t>(timeout_ms, INT32_MAX));
  (void)setsockopt(fd_, IPPROTO_TCP, TCP_USER_TIMEOUT, &most, sizeof(most));
  // While nothing is sent, only probes find that the other machine is gone.
  const auto probe_s = static_cast<int>(std::clamp<int64_t>(timeout_ms / 1000, 1, kMaxProbeS));
  (void)setsockopt(fd_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  (void)setsockopt(fd_, IPPROTO_TCP, TCP_KEEPIDLE, &probe_s, sizeof(probe_s));
  (void)setsockopt(fd_, IPPROTO_TCP, TCP_KEEPINTVL, &probe_s, sizeof(probe_s));
}

StatusOr<NetAddress> TcpSocket::address() const {
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return Internal(std::string("a socket without an address: ") + std::strerror(errno));
  }
  return NetAddress::FromSocket(bound);
}

StatusOr<NetAddress> TcpSocket::peer_address() const {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  if (getpeername(fd_, reinterpret_cast<sockaddr*>(&peer), &size) != 0) {
    return ConnectionOver(errno);
  }
  return NetAddress::FromSocket(peer);
}

StatusOr<std::optional<TcpSocket>> TcpSocket::Accept(int64_t timeout_ms) {
  const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
    return ResourceExhausted(std::string("a connection cannot be taken: ") + std::strerror(errno));
  }
  if (fd < 0) return std::optional<TcpSocket>();
  std::optional<TcpSocket> accepted = TcpSocket(fd);
  accepted->SetOptions(timeout_ms);
  return accepted;
}

StatusOr<size_t> TcpSocket::Send(std::span<const std::byte> first,
                                 std::span<const std::byte> second) {
  iovec parts[] = {{const_cast<std::byte*>(first.data()), first.size()},
                   {const_cast<std::byte*>(second.data()), second.size()}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = std::size(parts);
  const ssize_t sent = sendmsg(fd_, &message, MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (IsOnlyLater(errno)) return size_t{0};
  return ConnectionOver(errno);
}

StatusOr<size_t> TcpSocket::Receive(std::span<std::byte> first, std::span<std::byte> second) {
  iovec parts[] = {{first.data(), first.size()}, {second.data(), second.size()}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = std::size(parts);
  const ssize_t received = recvmsg(fd_, &message, 0);
  if (received > 0) return static_cast<size_t>(received);
  if (received == 0) return Unavailable("the other side has closed the connection");
  if (IsOnlyLater(errno)) return size_t{0};
  return ConnectionOver(errno);
}

void TcpSocket::ShutDown() { (void)shutdown(fd_, SHUT_RDWR); }

}  // namespace pagemill::net
