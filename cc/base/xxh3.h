// File: cc/base/xxh3.h
// XXH3, 128 bits, seed 0, default secret: a fast hash without cryptographic strength. The same
// bytes give the same digest on every machine, little or big endian.
//
//   Digest128 d = Xxh3_128(bytes.data(), bytes.size());
//
// The xxHash library computes it (third_party/xxhash).
#ifndef PAGEMILL_CC_BASE_XXH3_H_
#define PAGEMILL_CC_BASE_XXH3_H_

#include <cstddef>
#include <cstdint>

namespace pagemill {

struct Digest128 {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const Digest128&, const Digest128&) = default;
};

Digest128 Xxh3_128(const void* data, size_t size);

}  // namespace pagemill

#endif  // PAGEMILL_CC_BASE_XXH3_H_
