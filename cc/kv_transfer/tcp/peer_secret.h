// File: cc/kv_transfer/tcp/peer_secret.h
// A secret that engines share, and proofs that the other side knows it: HMAC-SHA-256 (RFC 2104).
//
//   const PeerSecret secret(text);
//   const Digest256 mac = secret.Mac({AsBytes("client"), my_nonce, your_nonce});
//   if (!IsSame(mac, received)) ...
//
// Thread safety: const access is safe.
#ifndef PAGEMILL_CC_KV_TRANSFER_TCP_PEER_SECRET_H_
#define PAGEMILL_CC_KV_TRANSFER_TCP_PEER_SECRET_H_

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "cc/base/sha256.h"
#include "cc/base/status.h"

namespace pagemill::kv_transfer {

// Shorter ones can be guessed from a handshake that was overheard.
inline constexpr size_t kMinSecretBytes = 16;

class PeerSecret {
 public:
  // Any text.
  explicit PeerSecret(std::string_view text);
  // Of `parts`, one after another. Their sizes are the caller's to fix.
  Digest256 Mac(std::initializer_list<std::span<const std::byte>> parts) const;

 private:
  std::array<std::byte, 64> key_ = {};
};

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Takes as long for any difference.
bool IsSame(const Digest256& a, const Digest256& b);

// Fills `to` with random bytes that cannot be guessed; kUnavailable if the system has none.
Status FillRandom(std::span<std::byte> to);

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_TCP_PEER_SECRET_H_
