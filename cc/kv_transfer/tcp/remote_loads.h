// File: cc/kv_transfer/tcp/remote_loads.h
// Loads from engines on other machines (remote_peer.h), and only from addresses that the operator
// has listed: a client's parameters cannot make this engine connect anywhere else.
//
//   RemoteLoads loads({address}, std::move(config));
//   if (RemotePeer* peer = loads.Find(transfer.handover)) peer->Add(transfer);
//   ... poll what AddPolled() adds ...
//   while (loads.Advance(now_ms, &results)) {}
//
// Thread safety: none.
#ifndef PAGEMILL_CC_KV_TRANSFER_TCP_REMOTE_LOADS_H_
#define PAGEMILL_CC_KV_TRANSFER_TCP_REMOTE_LOADS_H_

#include <poll.h>

#include <cstdint>
#include <map>
#include <vector>

#include "cc/kv_cache/transfer.h"
#include "cc/kv_transfer/tcp/remote_peer.h"
#include "cc/net/net_address.h"

namespace pagemill::kv_transfer {

class RemoteLoads {
 public:
  RemoteLoads(const std::vector<net::NetAddress>& peers, RemotePeer::Config config);

  // The peer at the address that a client named; null if the address is not listed.
  RemotePeer* Find(const kv_cache::Handover& handover);
  void Abandon(kv_cache::TransferId id);
  void AddPolled(std::vector<pollfd>* polled) const;
  // Appends the results of loads that are over. True if it did anything.
  bool Advance(int64_t now_ms, std::vector<kv_cache::KvTransferResult>* ended);

 private:
  const RemotePeer::Config config_;
  std::map<net::NetAddress, RemotePeer> peers_;
};

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_TCP_REMOTE_LOADS_H_
