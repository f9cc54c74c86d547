// File: cc/comm/tcp/node_options.h
// What ranks on several machines (nodes) have to know and to agree on before they can be a world.
//
// Nodes have equally many ranks, with consecutive numbers: those of node 0 come first. Thread
// safety: a value.
#ifndef PAGEMILL_CC_COMM_TCP_NODE_OPTIONS_H_
#define PAGEMILL_CC_COMM_TCP_NODE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/sha256.h"
#include "cc/base/status.h"
#include "cc/comm/group.h"
#include "cc/comm/topology.h"
#include "cc/comm/world.h"
#include "cc/net/net_address.h"

namespace pagemill::comm {

struct NodeOptions {
  net::NetAddress master;   // where rank 0 listens
  std::string secret = {};  // that all nodes have; may be empty if `master` is of loopback
  Topology topology = {};
  int32_t num_nodes = 2;

  // The same on all nodes, or they refuse one another.
  std::string version = {};  // of Pagemill; at most 32 bytes
  Digest256 model = {};
  Digest256 options = {};
  // The ranks agree on the smallest of their numbers: pages of the KV cache that fit.
  int64_t number = 0;

  int64_t timeout_ms = 60'000;  // after which a machine that does not answer is gone
  int32_t spin_us = 100;        // how long a waiting rank spins before it sleeps

  // kInvalidArgument names the field, its value and its range.
  Status Validate() const;

  int32_t ranks_per_node() const { return topology.num_ranks() / num_nodes; }
  int32_t node_of(int32_t rank) const { return rank / ranks_per_node(); }
  LocalRank local(int32_t rank) const { return {rank % ranks_per_node(), ranks_per_node()}; }
  // Whether the group of `rank` along `axis` has ranks of several nodes.
  bool Spans(Axis axis, int32_t rank) const;
  // The ranks that share a group of several nodes with `rank`, in ascending order.
  std::vector<int32_t> Peers(int32_t rank) const;
};

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_TCP_NODE_OPTIONS_H_
