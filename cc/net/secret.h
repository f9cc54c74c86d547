// File: cc/net/secret.h
// A secret that engines share, and proofs that the other side knows it: HMAC-SHA-256 (RFC 2104).
//
//   const Secret secret(text);
//   const Digest256 mac = secret.Mac({AsBytes("client"), my_nonce, your_nonce});
//   if (!IsSame(mac, received)) ...
//
// Thread safety: const access is safe.
#ifndef PAGEMILL_CC_NET_SECRET_H_
#define PAGEMILL_CC_NET_SECRET_H_

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "cc/base/sha256.h"
#include "cc/base/status.h"

namespace pagemill::net {

// Shorter ones can be guessed from a handshake that was overheard.
inline constexpr size_t kMinSecretBytes = 16;

class Secret {
 public:
  // Any text.
  explicit Secret(std::string_view text);
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

}  // namespace pagemill::net

#endif  // PAGEMILL_CC_NET_SECRET_H_
