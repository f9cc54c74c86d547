#include "cc/comm/tcp/node_options.h"

#include <algorithm>

#include "cc/comm/tcp/join_messages.h"
#include "cc/net/secret.h"

namespace pagemill::comm {

Status NodeOptions::Validate() const {
  PAGEMILL_RETURN_IF_ERROR(topology.Validate());
  if (num_nodes < 2 || topology.num_ranks() % num_nodes != 0) {
    return InvalidArgument("num_nodes is " + std::to_string(num_nodes) +
                           "; it is at least 2 and divides the number of ranks, " +
                           std::to_string(topology.num_ranks()));
  }
  if (version.size() > kVersionBytes) {
    return InvalidArgument("version has more than " + std::to_string(kVersionBytes) + " bytes");
  }
  if (master.is_wildcard()) {
    return InvalidArgument("master is " + master.ToString() +
                           ", to which no node can connect: use an address of node 0");
  }
  if (secret.empty() && !master.is_loopback()) {
    return InvalidArgument("nodes at " + master.ToString() +
                           " need a secret: only those of one machine, at a loopback address, do"
                           " without");
  }
  if (!secret.empty() && secret.size() < net::kMinSecretBytes) {
    return InvalidArgument("the secret of nodes has " + std::to_string(secret.size()) +
                           " characters; it has at least " + std::to_string(net::kMinSecretBytes));
  }
  return OkStatus();
}

bool NodeOptions::Spans(Axis axis, int32_t rank) const {
  const std::vector<int32_t> members = topology.Members(axis, rank);
  return node_of(members.front()) != node_of(members.back());
}

std::vector<int32_t> NodeOptions::Peers(int32_t rank) const {
  std::vector<int32_t> peers;
  for (const Axis axis : kAxes) {
    if (!Spans(axis, rank)) continue;
    for (const int32_t member : topology.Members(axis, rank)) {
      if (member != rank && !std::ranges::count(peers, member)) peers.push_back(member);
    }
  }
  std::ranges::sort(peers);
  return peers;
}

}  // namespace pagemill::comm
