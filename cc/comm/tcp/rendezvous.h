// File: cc/comm/tcp/rendezvous.h
// How the ranks of several nodes find one another. Every rank connects to rank 0, at the one
// address that all know, and says where it listens itself; when all have come, rank 0 tells each
// where the others are, and each connects to those of its groups that have smaller numbers.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<Rendezvous> rendezvous,
//                             Rendezvous::Begin(options, rank));
//   while (true) {
//     const Status status = rendezvous->Run(std::chrono::milliseconds(100));
//     if (status.ok()) break;
//     if (status.code() != StatusCode::kUnavailable) return status;
//   }
//   Rendezvous::Result result = std::move(*rendezvous).Take();
//
// Each connection begins with a handshake, by which both sides prove that they have the secret. A
// rank of another version, model or options is refused with a sentence, which both sides log.
// Strangers are bounded: their number, the bytes and the time of their messages.
//
// Thread safety: none.
#ifndef PAGEMILL_CC_COMM_TCP_RENDEZVOUS_H_
#define PAGEMILL_CC_COMM_TCP_RENDEZVOUS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/comm/tcp/join_messages.h"
#include "cc/comm/tcp/node_options.h"
#include "cc/net/frame_stream.h"
#include "cc/net/handshake.h"
#include "cc/net/secret.h"
#include "cc/net/tcp_socket.h"

namespace pagemill::comm {

class Rendezvous {
 public:
  struct Result {
    std::vector<std::optional<net::TcpSocket>> sockets;  // by rank: those of NodeOptions::Peers()
    std::vector<std::string> hosts;                      // by rank
    int64_t number = 0;                                  // the smallest of all ranks
  };

  // `options` are valid, and have the rank. Rank 0 listens: kInvalidArgument if this machine does
  // not have the address, kFailedPrecondition if it is in use.
  static StatusOr<std::unique_ptr<Rendezvous>> Begin(const NodeOptions& options, int32_t rank);

  // OK once all have joined. kUnavailable, with what is missing, if they have not within `limit`:
  // to be called again. Any other error is final.
  Status Run(std::chrono::milliseconds limit);
  // After Run() has succeeded.
  Result Take() &&;

 private:
  // A connection that this rank has accepted.
  struct Guest {
    explicit Guest(net::FrameStream accepted) : stream(std::move(accepted)) {}
    net::FrameStream stream;
    std::optional<net::ServerHandshake> handshake = {};
    std::optional<Claim> claim = {};
    std::string reason = {};  // why it may not join
    int64_t since_ms = 0;
  };
  // A connection that this rank has opened.
  struct Host {
    net::FrameStream stream;
    net::ClientHandshake handshake;
    int64_t since_ms = 0;
  };

  Rendezvous(const NodeOptions& options, int32_t rank);
  Status Turn(int64_t now_ms);
  Status Connect(int32_t rank, const net::NetAddress& address, int64_t now_ms);
  Status AdvanceMaster(int64_t now_ms);
  Status AdvanceHosts(int64_t now_ms);
  // True if nothing more is expected of it.
  StatusOr<bool> Advance(int32_t rank, Host* host, int64_t now_ms);
  void Accept(int64_t now_ms);
  void AdvanceGuests(int64_t now_ms);
  // True if the guest is to be forgotten.
  bool Advance(Guest* guest, int64_t now_ms);
  std::optional<net::Payload> Judge(Guest* guest, std::span<const std::byte> payload);
  std::string ReasonAgainst(const Claim& claim) const;
  Status AdvanceMembers(int64_t now_ms);
  Status ConnectToPeers(int64_t now_ms);
  Status CannotJoin(int32_t rank, const Status& why) const;
  bool is_done() const;
  Claim Mine() const;
  std::string Missing() const;
  void Wait(int64_t limit_ms) const;

  const NodeOptions options_;
  const int32_t rank_;
  const std::vector<int32_t> peers_;
  const net::Secret secret_;
  std::optional<net::TcpSocket> listener_;
  bool accepts_ = true;  // false: the last connection could not be taken, for want of descriptors
  std::vector<std::unique_ptr<Guest>> guests_;
  std::map<int32_t, Host> hosts_;
  int64_t retry_ms_ = 0;                               // when to connect to rank 0 again
  std::map<int32_t, std::unique_ptr<Guest>> members_;  // of rank 0: those that have joined
  std::optional<Start> start_;
  std::string refused_;  // the last guest, and why
  std::vector<std::optional<net::TcpSocket>> sockets_;
};

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_TCP_RENDEZVOUS_H_
