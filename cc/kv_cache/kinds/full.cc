#include "cc/kv_cache/kinds/full.h"

namespace pagemill::kv_cache {

int32_t FullAttention::NumBlocks(int32_t num_tokens, const RequestShape&) const {
  return (num_tokens + block_size_ - 1) / block_size_;
}

int32_t FullAttention::LongestPrefix(const GroupContent& content, int32_t max_blocks) const {
  int32_t n = 0;
  while (n < max_blocks && content.Has(n)) ++n;
  return n;
}

}  // namespace pagemill::kv_cache
