#include "cc/kv_cache/kinds/cross.h"

namespace pagemill::kv_cache {

int32_t CrossAttention::NumBlocks(int32_t num_tokens, const RequestShape& shape) const {
  return num_tokens == 0 ? 0 : (shape.media_tokens + block_size_ - 1) / block_size_;
}

}  // namespace pagemill::kv_cache
