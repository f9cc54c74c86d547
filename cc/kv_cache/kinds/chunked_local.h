// File: cc/kv_cache/kinds/chunked_local.h
// Chunked local attention: the context is cut into chunks of window_tokens, and a token reads the
// tokens of its own chunk that are before it, and itself.
#ifndef PAGEMILL_CC_KV_CACHE_KINDS_CHUNKED_LOCAL_H_
#define PAGEMILL_CC_KV_CACHE_KINDS_CHUNKED_LOCAL_H_

#include <cstdint>

#include "cc/kv_cache/kinds/cache_kind.h"
#include "cc/kv_cache/kinds/windowed.h"

namespace pagemill::kv_cache {

class ChunkedLocalAttention final : public WindowedAttention {
 public:
  ChunkedLocalAttention(int32_t block_size, int32_t chunk_tokens)
      : WindowedAttention(block_size, chunk_tokens) {}

 private:
  int32_t FirstToken(int32_t position) const override;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_KINDS_CHUNKED_LOCAL_H_
