// File: cc/comm/tcp/links.h
// The connections of a rank to those of its groups that span nodes, and the messages of calls on
// them.
//
//   Links links(names, {.spin_us = 100});
//   links.Add(/*rank=*/1, std::move(socket));
//   const Links::Outgoing out[] = {{.rank = 1, .call = word, .data = mine}};
//   const Links::Incoming in[] = {{.rank = 1, .call = word, .data = theirs}};
//   PAGEMILL_RETURN_IF_ERROR(links.Exchange(out, in));
//
// A message is a head of 16 bytes, little endian: a word that both sides compute of their call, and
// the number of bytes; then these. Nothing is read or allocated by what a peer says: a head that is
// not the expected one is an error. A head with word 0 is a farewell: which rank has ended.
//
// Thread safety: one thread at a time, except for FindGone().
#ifndef PAGEMILL_CC_COMM_TCP_LINKS_H_
#define PAGEMILL_CC_COMM_TCP_LINKS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/net/tcp_socket.h"

namespace pagemill::comm {

class Links {
 public:
  struct Outgoing {
    int32_t rank = 0;
    uint64_t call = 0;
    std::span<const std::byte> data = {};
  };
  struct Incoming {
    int32_t rank = 0;
    uint64_t call = 0;
    std::span<std::byte> data = {};
  };
  // Why the ranks end: one of them is done, which is no failure, or has failed.
  struct Farewell {
    int32_t rank = 0;
    bool is_done = false;
  };

  // `names` are those of all ranks in messages. A waiting rank spins for so long before it sleeps.
  Links(std::vector<std::string> names, std::chrono::microseconds spin);

  void Add(int32_t rank, net::TcpSocket socket);

  // Sends and receives messages, at most one each way for each rank, at the same time: two ranks
  // that exchange messages of any size do not wait for one another. After an error nothing can be
  // exchanged any more; ended() says which rank it was.
  Status Exchange(std::span<const Outgoing> out, std::span<const Incoming> in);

  // The rank that has ended, by the error of Exchange().
  const std::optional<Farewell>& ended() const { return ended_; }
  // The rank of the farewell that ShutDown() sent, or one whose connection is over; any thread.
  std::optional<int32_t> FindGone() const;
  // Sends a farewell to every rank if its socket takes it now, and ends the connections.
  // Idempotent.
  void ShutDown(const Farewell& farewell);

 private:
  static constexpr size_t kHeadBytes = 16;
  static constexpr int32_t kNoRank = -1;
  using Head = std::array<std::byte, kHeadBytes>;

  struct Link {
    std::optional<net::TcpSocket> socket = {};
    bool sends = false;     // part of a message: what follows would be taken for its rest
    bool receives = false;  // likewise
  };
  // A message under way.
  struct Flow {
    int32_t rank = 0;
    bool is_out = false;
    uint64_t call = 0;
    Head head = {};
    std::span<std::byte> data = {};  // only read if `is_out`
    size_t done = 0;
    size_t size() const { return kHeadBytes + data.size(); }
  };

  Link& link(int32_t rank) { return links_[static_cast<size_t>(rank)]; }
  StatusOr<size_t> Move(Flow* flow);
  Status Advance(Flow* flow, bool* moved);
  Status CheckHead(const Flow& flow);
  Status Lost(int32_t rank);
  Status Ended(const Farewell& farewell);
  void Wait() const;

  const std::vector<std::string> names_;
  const std::chrono::microseconds spin_;
  std::vector<Link> links_;  // by rank; those without a common group have no socket
  std::vector<Flow> flows_;  // of the running exchange
  std::optional<Farewell> ended_ = {};
  std::atomic<int32_t> first_to_end_{kNoRank};  // that of the farewell, once it is sent
};

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_TCP_LINKS_H_
