#include "cc/kv_cache/kv_cache_options.h"

#include "cc/kv_cache/kinds/kinds.h"

namespace pagemill::kv_cache {

Status KvCacheOptions::Validate() const {
  const int32_t least = groups.empty() ? 1 : 2;
  if (num_blocks < least) {
    return InvalidArgument("num_blocks is " + std::to_string(num_blocks) +
                           ", it must be at least " + std::to_string(least) +
                           " (block 0 is the null block)");
  }
  if (block_size < 1) {
    return InvalidArgument("block_size is " + std::to_string(block_size) +
                           ", it must be at least 1 token");
  }
  for (const std::string& kind : groups) {
    PM_RETURN_IF_ERROR(MakeCacheKind(kind, block_size).status());
  }
  return OkStatus();
}

}  // namespace pagemill::kv_cache
