// File: cc/kv_transfer/tcp/segment_server.h
// Serves the blocks of this engine's segment of shared memory (shared_segment.h) by TCP to engines
// on other machines that know the secret.
//
//   PAGEMILL_ASSIGN_OR_RETURN(auto server, SegmentServer::Create(address, std::move(config)));
//   ... poll what AddPolled() adds ...
//   while (server->Advance(now_ms)) {}
//
// Thread safety: none.
#ifndef PAGEMILL_CC_KV_TRANSFER_TCP_SEGMENT_SERVER_H_
#define PAGEMILL_CC_KV_TRANSFER_TCP_SEGMENT_SERVER_H_

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_transfer/tcp/peer_session.h"
#include "cc/net/net_address.h"
#include "cc/net/tcp_socket.h"

namespace pagemill::kv_transfer {

class SegmentServer {
 public:
  // Connections at a time. One more ends the oldest of those that have not proved that they know
  // the secret; without any, it is closed at once.
  static constexpr size_t kMaxSessions = 32;

  // Errors of net::TcpSocket::Listen().
  static StatusOr<std::unique_ptr<SegmentServer>> Create(const net::NetAddress& listen,
                                                         PeerSession::Config config);

  // Where it listens, with the port that it got.
  const net::NetAddress& address() const { return address_; }
  // Nothing happens without an event.
  bool is_idle() const { return sessions_.empty() && accepts_; }
  // Blocks that sessions wait for come without an event.
  bool is_waiting() const;
  void AddPolled(std::vector<pollfd>* polled) const;
  // Accepts, takes requests, and sends what there is. True if it did anything.
  bool Advance(int64_t now_ms);

 private:
  bool Accept(int64_t now_ms);
  SegmentServer(net::TcpSocket listener, net::NetAddress address, PeerSession::Config config)
      : config_(std::move(config)), listener_(std::move(listener)), address_(std::move(address)) {}

  const PeerSession::Config config_;
  net::TcpSocket listener_;
  const net::NetAddress address_;
  std::list<PeerSession> sessions_;
  // False for a while after a connection could not be taken, which makes the listener readable.
  bool accepts_ = true;
  int64_t accepts_from_ms_ = 0;
};

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_TCP_SEGMENT_SERVER_H_
