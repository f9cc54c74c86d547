#include "cc/net/secret.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace pagemill::net {

Secret::Secret(std::string_view text) {
  if (text.size() <= key_.size()) {
    std::memcpy(key_.data(), text.data(), text.size());
    return;
  }
  const Digest256 digest = Sha256(text.data(), text.size());
  std::memcpy(key_.data(), digest.data(), digest.size());
}

Digest256 Secret::Mac(std::initializer_list<std::span<const std::byte>> parts) const {
  const auto padded = [this](std::byte pad) {
    std::vector<std::byte> bytes;
    for (const std::byte byte : key_) bytes.push_back(byte ^ pad);
    return bytes;
  };
  std::vector<std::byte> inner = padded(std::byte{0x36});
  for (const auto part : parts) inner.insert(inner.end(), part.begin(), part.end());
  const Digest256 digest = Sha256(inner.data(), inner.size());
  std::vector<std::byte> outer = padded(std::byte{0x5c});
  const auto bytes = std::as_bytes(std::span(digest));
  outer.insert(outer.end(), bytes.begin(), bytes.end());
  return Sha256(outer.data(), outer.size());
}

bool IsSame(const Digest256& a, const Digest256& b) {
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

Status FillRandom(std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t got = getrandom(to.data(), to.size(), 0);
    if (got < 0 && errno != EINTR) {
      return Unavailable(std::string("the system has no random numbers: ") + std::strerror(errno));
    }
    if (got > 0) to = to.subspan(static_cast<size_t>(got));
  }
  return OkStatus();
}

}  // namespace pagemill::net
