// File: cc/base/sha256.h
// SHA-256 (FIPS 180-4). For data that an attacker might craft to collide; see xxh3.h for the fast
// hash.
//
//   Digest256 d = Sha256(bytes.data(), bytes.size());
#ifndef PAGEMILL_CC_BASE_SHA256_H_
#define PAGEMILL_CC_BASE_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace pagemill {

using Digest256 = std::array<uint8_t, 32>;

Digest256 Sha256(const void* data, size_t size);

}  // namespace pagemill

#endif  // PAGEMILL_CC_BASE_SHA256_H_
