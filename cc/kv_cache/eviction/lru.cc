#include "cc/kv_cache/eviction/lru.h"

namespace pagemill::kv_cache {

Status LruEviction::CheckIntegrity(int32_t num_pages) const {
  if (pages_.size() != num_pages) return Internal("lru: pages are missing");
  return pages_.CheckIntegrity();
}

}  // namespace pagemill::kv_cache
