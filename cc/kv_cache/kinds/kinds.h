// File: cc/kv_cache/kinds/kinds.h
// The table of cache kinds: name -> implementation.
#ifndef PAGEMILL_CC_KV_CACHE_KINDS_KINDS_H_
#define PAGEMILL_CC_KV_CACHE_KINDS_KINDS_H_

#include <cstdint>
#include <memory>

#include "cc/base/status.h"
#include "cc/kv_cache/kinds/cache_kind.h"
#include "cc/step/kv_group_options.h"

namespace pagemill::kv_cache {

using step::KvGroupOptions;

// `grain` is the cache's block_size, in tokens. kInvalidArgument names the field of `group`, its
// value and what is possible.
StatusOr<std::unique_ptr<CacheKind>> MakeCacheKind(const KvGroupOptions& group, int32_t grain);

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_KINDS_KINDS_H_
