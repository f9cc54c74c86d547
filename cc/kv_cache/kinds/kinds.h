// File: cc/kv_cache/kinds/kinds.h
// The table of cache kinds: name -> implementation.
#ifndef PAGEMILL_CC_KV_CACHE_KINDS_KINDS_H_
#define PAGEMILL_CC_KV_CACHE_KINDS_KINDS_H_

#include <memory>
#include <string_view>

#include "cc/base/status.h"
#include "cc/kv_cache/kinds/cache_kind.h"

namespace pagemill::kv_cache {

// kInvalidArgument lists the known kinds.
StatusOr<std::unique_ptr<CacheKind>> MakeCacheKind(std::string_view name, int32_t block_size);

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_KINDS_KINDS_H_
