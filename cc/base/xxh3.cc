#include "cc/base/xxh3.h"

// The library's code becomes part of this file: none of its symbols is exported.
#define XXH_INLINE_ALL
#include "xxhash.h"

namespace pagemill {

Digest128 Xxh3_128(const void* data, size_t size) {
  const XXH128_hash_t digest = XXH3_128bits(data, size);
  return {digest.low64, digest.high64};
}

}  // namespace pagemill
