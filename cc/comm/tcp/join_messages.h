// File: cc/comm/tcp/join_messages.h
// What a rank and rank 0, and later any two ranks, say to one another when they join a world:
// claim and answer of a handshake (cc/net/handshake.h), and the frame kStart by which rank 0 lets
// all begin. Sizes are fixed; numbers are little endian. Thread safety: pure functions.
#ifndef PAGEMILL_CC_COMM_TCP_JOIN_MESSAGES_H_
#define PAGEMILL_CC_COMM_TCP_JOIN_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cc/base/sha256.h"
#include "cc/comm/group.h"
#include "cc/net/handshake.h"

namespace pagemill::comm {

inline constexpr size_t kVersionBytes = 32;
inline constexpr size_t kReasonBytes = 320;
inline constexpr size_t kHostBytes = 48;
inline constexpr size_t kStartBytes = 8 + kMaxRanks * (kHostBytes + 8);
inline constexpr uint32_t kStart = 6;  // the type of the frame

inline constexpr net::Protocol kJoinProtocol = {
    .magic = {'P', 'M', 'N', 'O', 'D', 'E', 'S', '1'},
    .name = "pagemill node",
    .claim_bytes = kVersionBytes + 2 * sizeof(Digest256) + 24,
    .answer_bytes = kReasonBytes,
    .other_version =
        "the other node has a version of Pagemill that joins in another way: install"
        " one version on all nodes",
    .other_secret = "the other node does not have the same secret (--node-secret-file)",
    .refused_claim = "the other node did not understand this one",
    .stranger = "what listens there is no node of Pagemill (--master-addr, --master-port)",
    .misunderstood = "what listens there did not understand this node",
};

struct Claim {
  std::string version = {};  // at most kVersionBytes
  Digest256 model = {};
  Digest256 options = {};
  int32_t rank = 0;
  int64_t number = 0;
  uint16_t port = 0;  // where the rank listens for others; 0: it does not
};
net::Payload Encode(const Claim& claim);
// Of kJoinProtocol.claim_bytes; nullopt if no rank can have said that.
std::optional<Claim> DecodeClaim(std::span<const std::byte> payload);

// Why a rank may not join; "" if it may.
net::Payload EncodeReason(const std::string& reason);  // cut to kReasonBytes
std::string DecodeReason(std::span<const std::byte> payload);

struct Start {
  int64_t number = 0;  // the smallest of all ranks
  struct Place {
    std::string host = {};
    uint16_t port = 0;
  };
  std::vector<Place> places = {};  // of the ranks
};
net::Payload Encode(const Start& start);
std::optional<Start> DecodeStart(std::span<const std::byte> payload, int32_t num_ranks);

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_TCP_JOIN_MESSAGES_H_
