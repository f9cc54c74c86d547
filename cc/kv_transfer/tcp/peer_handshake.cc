#include "cc/kv_transfer/tcp/peer_handshake.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "cc/base/endian.h"

namespace pagemill::kv_transfer {
namespace {

net::Payload Encode(const SegmentFormat& format) {
  net::Payload claim(kPeerProtocol.claim_bytes);
  StoreLittle64(format.fingerprint.low, &claim[0]);
  StoreLittle64(format.fingerprint.high, &claim[8]);
  StoreLittle64(format.page_bytes, &claim[16]);
  return claim;
}

}  // namespace

net::ClientHandshake LoaderHandshake(const net::Secret* secret, const SegmentFormat& format) {
  return {&kPeerProtocol, secret, Encode(format)};
}

net::ServerHandshake OwnerHandshake(const net::Secret* secret, const SegmentFormat& format,
                                    std::string engine_id) {
  PAGEMILL_CHECK(engine_id.size() == kPeerProtocol.answer_bytes);
  const auto judge = [mine = Encode(format), engine_id = std::move(engine_id)](
                         std::span<const std::byte> claim) -> std::optional<net::Payload> {
    if (!std::ranges::equal(claim, mine)) return std::nullopt;
    const auto id = net::AsBytes(engine_id);
    return net::Payload(id.begin(), id.end());
  };
  return {&kPeerProtocol, secret, judge};
}

std::string EngineIdOf(const net::ClientHandshake& handshake) {
  std::string id;
  for (const std::byte each : handshake.answer()) id.push_back(static_cast<char>(each));
  return id;
}

}  // namespace pagemill::kv_transfer
