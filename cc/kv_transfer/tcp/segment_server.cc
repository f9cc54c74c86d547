#include "cc/kv_transfer/tcp/segment_server.h"

#include <algorithm>
#include <optional>

namespace pagemill::kv_transfer {
namespace {

constexpr int64_t kAcceptPauseMs = 500;

}  // namespace

StatusOr<std::unique_ptr<SegmentServer>> SegmentServer::Create(const net::NetAddress& listen,
                                                               PeerSession::Config config) {
  StatusOr<net::TcpSocket> listener = net::TcpSocket::Listen(listen);
  if (!listener.ok()) {
    return Status(listener.status().code(), "--kv-transfer-listen " + listener.status().message());
  }
  PAGEMILL_ASSIGN_OR_RETURN(net::NetAddress address, listener->address());
  return std::unique_ptr<SegmentServer>(
      new SegmentServer(*std::move(listener), std::move(address), std::move(config)));
}

void SegmentServer::AddPolled(std::vector<pollfd>* polled) const {
  if (accepts_) polled->push_back({.fd = listener_.fd(), .events = POLLIN, .revents = 0});
  for (const PeerSession& session : sessions_) {
    polled->push_back({.fd = session.fd(), .events = session.events(), .revents = 0});
  }
}

bool SegmentServer::is_waiting() const {
  return std::ranges::any_of(sessions_, &PeerSession::is_waiting);
}

bool SegmentServer::Advance(int64_t now_ms) {
  bool moved = Accept(now_ms);
  for (auto session = sessions_.begin(); session != sessions_.end();) {
    const StatusOr<bool> advanced = session->Advance(now_ms);
    moved = moved || !advanced.ok() || *advanced;
    session = advanced.ok() ? std::next(session) : sessions_.erase(session);
  }
  return moved;
}

// One at a time, so that a flood of connections leaves time for the others.
bool SegmentServer::Accept(int64_t now_ms) {
  accepts_ = now_ms >= accepts_from_ms_;
  if (!accepts_) return false;
  StatusOr<std::optional<net::TcpSocket>> socket = listener_.Accept(config_.timeout_ms);
  if (!socket.ok()) {
    accepts_ = false;
    accepts_from_ms_ = now_ms + kAcceptPauseMs;
    return false;
  }
  if (!*socket) return false;
  if (sessions_.size() >= kMaxSessions) {
    const auto stranger = std::ranges::find(sessions_, false, &PeerSession::is_trusted);
    if (stranger == sessions_.end()) return true;
    sessions_.erase(stranger);
  }
  sessions_.emplace_back(**std::move(socket), &config_, now_ms);
  return true;
}

}  // namespace pagemill::kv_transfer
