#include "cc/kv_transfer/tcp/remote_loads.h"

#include <utility>

#include "cc/base/status.h"

namespace pagemill::kv_transfer {

RemoteLoads::RemoteLoads(const std::vector<net::NetAddress>& peers, RemotePeer::Config config)
    : config_(std::move(config)) {
  for (const net::NetAddress& address : peers) peers_.try_emplace(address, address, &config_);
}

RemotePeer* RemoteLoads::Find(const kv_cache::Handover& handover) {
  const StatusOr<net::NetAddress> address = net::NetAddress::Make(handover.host, handover.port);
  if (!address.ok()) return nullptr;
  const auto found = peers_.find(*address);
  return found == peers_.end() ? nullptr : &found->second;
}

void RemoteLoads::Abandon(kv_cache::TransferId id) {
  for (auto& [address, peer] : peers_) peer.Abandon(id);
}

void RemoteLoads::AddPolled(std::vector<pollfd>* polled) const {
  for (const auto& [address, peer] : peers_) {
    if (peer.fd() >= 0) polled->push_back({.fd = peer.fd(), .events = peer.events(), .revents = 0});
  }
}

bool RemoteLoads::Advance(int64_t now_ms, std::vector<kv_cache::KvTransferResult>* ended) {
  bool moved = false;
  for (auto& [address, peer] : peers_) moved = peer.Advance(now_ms, ended) || moved;
  return moved;
}

}  // namespace pagemill::kv_transfer
