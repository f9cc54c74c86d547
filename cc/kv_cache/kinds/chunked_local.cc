#include "cc/kv_cache/kinds/chunked_local.h"

namespace pagemill::kv_cache {

int32_t ChunkedLocalAttention::FirstToken(int32_t position) const {
  return position / window_tokens() * window_tokens();
}

}  // namespace pagemill::kv_cache
