// File: cc/kv_transfer/tcp/peer_handshake.h
// The handshake (cc/net/handshake.h) between an engine that loads KV and one that has it: the
// client claims the format of its KV, which has to be the server's; the server answers with its
// engine id.
//
//   net::ClientHandshake handshake = LoaderHandshake(&secret, format);
//   ... once it is done:
//   const std::string engine_id = EngineIdOf(handshake);
//
// Thread safety: none.
#ifndef PAGEMILL_CC_KV_TRANSFER_TCP_PEER_HANDSHAKE_H_
#define PAGEMILL_CC_KV_TRANSFER_TCP_PEER_HANDSHAKE_H_

#include <string>

#include "cc/kv_transfer/segment_layout.h"
#include "cc/net/handshake.h"
#include "cc/net/secret.h"

namespace pagemill::kv_transfer {

inline constexpr net::Protocol kPeerProtocol = {
    .magic = {'P', 'M', 'K', 'V', 'T', 'C', 'P', '1'},
    .name = "pagemill kv",
    .claim_bytes = 24,   // the format
    .answer_bytes = 32,  // the engine id
    .other_version = "the other engine is of another version of Pagemill",
    .other_secret = "the other engine does not have the same secret (--kv-transfer-secret-file)",
    .refused_claim = "the other engine has KV of another model or layout",
    .stranger = "what listens there is no engine that hands over KV",
    .misunderstood = "what listens there did not understand this engine",
};

// `secret` outlives what they return. `engine_id` has 32 characters.
net::ClientHandshake LoaderHandshake(const net::Secret* secret, const SegmentFormat& format);
net::ServerHandshake OwnerHandshake(const net::Secret* secret, const SegmentFormat& format,
                                    std::string engine_id);

// The server's, of a handshake that is done.
std::string EngineIdOf(const net::ClientHandshake& handshake);

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_TCP_PEER_HANDSHAKE_H_
