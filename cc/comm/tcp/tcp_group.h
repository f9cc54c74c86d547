// File: cc/comm/tcp/tcp_group.h
// Collectives along one axis between ranks of several nodes, by TCP. Made by a TcpWorld
// (tcp_world.h), which documents how a group ends.
//
// Every pair of ranks has a connection. A rank sends its data to each of the others, which is one
// trip over the network for a call of any kind; sums are added in rank order, so that all ranks get
// the same bits, those of a SharedMemoryGroup. Large sums are exchanged in pieces, which bounds the
// memory that a rank needs for the data of the others.
//
// The order of calls is that of their bytes on a connection: a rank that has sent a message makes
// no other call with its receiver before that has received it.
#ifndef PAGEMILL_CC_COMM_TCP_TCP_GROUP_H_
#define PAGEMILL_CC_COMM_TCP_TCP_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/comm/call_parts.h"
#include "cc/comm/group.h"
#include "cc/comm/tcp/links.h"

namespace pagemill::comm {

class TcpWorld;

class TcpGroup final : public Group {
 public:
  // `members` are the ranks of the group in the world, which outlives it.
  TcpGroup(TcpWorld* world, Axis axis, const std::vector<int32_t>& members);

  const Status& status() const override;
  void Leave() override;

 private:
  Status Run(const Collective& call) override;
  Status RunAllReduce(const Collective& call);
  Status RunReduceScatter(const Collective& call);
  Status RunAllGather(const Collective& call);
  Status RunAllToAll(const Collective& call);
  Status RunBroadcast(const Collective& call);
  Status RunSend(const Collective& call);
  Status RunReceive(const Collective& call);

  // The word of a call of all members.
  CallFingerprint Word(const Collective& call);
  // Exchanges a piece with every other member: sends `out(r)` and receives `in(r)`. Sizes of the
  // first piece of a call may be 0; behind it, those without data exchange nothing.
  Status ExchangePiece(uint64_t word, bool is_first,
                       const std::function<std::span<const std::byte>(size_t)>& out,
                       const std::function<std::span<std::byte>(size_t)>& in);
  // Where a piece of `bytes` bytes of member `r` is received.
  std::byte* Scratch(size_t r, int64_t bytes);

  TcpWorld* const world_;
  const Axis axis_;
  const std::vector<int32_t> members_;
  uint64_t calls_ = 0;  // of all members
  std::vector<std::byte> scratch_;
  std::vector<Links::Outgoing> out_;
  std::vector<Links::Incoming> in_;
};

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_TCP_TCP_GROUP_H_
