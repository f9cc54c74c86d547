// File: cc/kv_transfer/tcp/remote_peer.h
// The client's end of the connection to one engine on another machine, and the loads that fetch
// blocks from it. The connection is made for the first load, and kept for the next ones.
//
//   RemotePeer peer(address, config);
//   peer.Add(load);
//   ... poll peer.fd(), if there is one, for peer.events() ...
//   peer.Advance(now_ms, &results);
//
// A connection that fails, is refused, or says what an engine would not say ends the loads that are
// under way, each with the blocks that it has; the next load connects again. Whatever comes is
// checked before it is written to a page. Thread safety: none.
#ifndef PAGEMILL_CC_KV_TRANSFER_TCP_REMOTE_PEER_H_
#define PAGEMILL_CC_KV_TRANSFER_TCP_REMOTE_PEER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/transfer.h"
#include "cc/kv_transfer/segment_layout.h"
#include "cc/kv_transfer/tcp/peer_handshake.h"
#include "cc/kv_transfer/tcp/peer_messages.h"
#include "cc/net/frame_stream.h"
#include "cc/net/net_address.h"
#include "cc/net/secret.h"
#include "cc/step/page_store.h"

namespace pagemill::kv_transfer {

class RemotePeer {
 public:
  // What all peers of an engine share.
  struct Config {
    net::Secret secret;
    SegmentFormat format = {};
    step::PageStore* pages = nullptr;
    int64_t timeout_ms = 10'000;  // of a message
  };

  // `config` outlives the peer.
  RemotePeer(net::NetAddress address, const Config* config)
      : config_(*config), address_(std::move(address)) {}

  void Add(kv_cache::KvTransfer load);
  // Ends the load, if it is one of this peer's, with kUnavailable.
  void Abandon(kv_cache::TransferId id);
  // -1 if there is no connection.
  int fd() const { return link_ ? link_->stream.fd() : -1; }
  short events() const { return link_ ? link_->stream.events() : short{0}; }  // NOLINT: of pollfd
  // Sends, and takes what came. True if it did anything.
  bool Advance(int64_t now_ms, std::vector<kv_cache::KvTransferResult>* ended);

 private:
  struct Job {
    kv_cache::KvTransfer transfer;
    size_t num_done = 0;  // leading blocks
  };
  struct Link {
    net::FrameStream stream;
    net::ClientHandshake handshake;
    int64_t used_ms;  // when it was opened, then the last time when there was a load
  };

  Status Open(int64_t now_ms);
  StatusOr<bool> Progress(int64_t now_ms);
  StatusOr<bool> ReadAll(int64_t now_ms);
  Status Take(const net::Frame& frame);
  void TakeBlock(const BlockMessage& message);
  Status Write(const kv_cache::BlockContent& block, const BlockMessage& message);
  void Fetch(Job* job);
  void End(uint64_t id, Status status);

  const Config& config_;
  const net::NetAddress address_;
  std::optional<Link> link_;
  std::map<uint64_t, Job> jobs_;  // by the value of the transfer's id
  std::vector<kv_cache::KvTransferResult> ended_;
};

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_TCP_REMOTE_PEER_H_
