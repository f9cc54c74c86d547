// File: cc/kv_transfer/tcp/peer_session.h
// The server's end of one connection: an engine on another machine that fetches blocks from this
// engine's segment of shared memory, as one on this machine does by itself (peer_loads.h).
//
//   PeerSession session(std::move(socket), config, now_ms);
//   ... poll session.fd() for session.events() ...
//   StatusOr<bool> moved = session.Advance(now_ms);  // an error: destroy the session
//
// Bounded: bytes of a message, time of the handshake and of every message, fetches at a time and
// their blocks, bytes that wait to be sent, time without any fetch. Thread safety: none.
#ifndef PAGEMILL_CC_KV_TRANSFER_TCP_PEER_SESSION_H_
#define PAGEMILL_CC_KV_TRANSFER_TCP_PEER_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/transfer.h"
#include "cc/kv_transfer/peer_loads.h"
#include "cc/kv_transfer/segment_layout.h"
#include "cc/kv_transfer/tcp/peer_handshake.h"
#include "cc/kv_transfer/tcp/peer_messages.h"
#include "cc/net/frame_stream.h"
#include "cc/net/secret.h"
#include "cc/net/tcp_socket.h"
#include "cc/step/page_store.h"

namespace pagemill::kv_transfer {

class PeerSession {
 public:
  // What all sessions of an engine share.
  struct Config {
    net::Secret secret;
    SegmentFormat format = {};
    std::string engine_id = {};              // of the segment
    const step::PageStore* pages = nullptr;  // which says how large pages are
    int64_t timeout_ms = 10'000;             // of a message
  };

  // `config` outlives the session.
  PeerSession(net::TcpSocket socket, const Config* config, int64_t now_ms);
  PeerSession(const PeerSession&) = delete;
  PeerSession& operator=(const PeerSession&) = delete;

  int fd() const { return stream_.fd(); }
  short events() const;  // NOLINT(google-runtime-int): the type of pollfd::events
  // The other side has proved that it knows the secret.
  bool is_trusted() const { return handshake_.is_done(); }
  // Fetches wait for blocks, which come without an event at fd().
  bool is_waiting() const { return !loads_.empty() && stream_.num_queued_bytes() == 0; }
  // Takes what came, and sends what there is. True if it did anything. An error ends the session.
  StatusOr<bool> Advance(int64_t now_ms);

 private:
  bool reads() const;
  StatusOr<bool> ReadAll(int64_t now_ms);
  Status Take(const net::Frame& frame);
  Status Start(Fetch fetch);
  bool SendBlocks();
  void SendEnd(uint64_t id, StatusCode code);

  const Config& config_;
  net::FrameStream stream_;
  net::ServerHandshake handshake_;
  PeerLoads loads_;
  std::unordered_map<uint64_t, size_t> num_blocks_;  // of the fetches under way, by id
  size_t num_fetched_blocks_ = 0;                    // their sum
  int64_t used_ms_;                                  // the last time when there was a fetch
  std::vector<kv_cache::KvTransferResult> ended_;    // during SendBlocks()
};

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_TCP_PEER_SESSION_H_
