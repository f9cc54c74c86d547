// File: cc/kv_cache/eviction/eviction_policy.h
// Which reusable content goes first when the pool has no other page. Knows the free pages that have
// content, and nothing else; the order among pages without content is the pool's.
#ifndef PAGEMILL_CC_KV_CACHE_EVICTION_EVICTION_POLICY_H_
#define PAGEMILL_CC_KV_CACHE_EVICTION_EVICTION_POLICY_H_

#include <cstdint>

#include "cc/base/status.h"
#include "cc/kv_cache/block.h"

namespace pagemill::kv_cache {

// Obligations of an implementer:
// 1. All functions are O(1), allocate nothing, and depend on the calls before and on Block::hash,
//    group, reused and used only.
// 2. Insert() takes a page that is in no list; until Remove() its links belong to the policy, and
//    its hash stays. Block::is_protected belongs to the policy, which may clear Block::used.
// 3. Victim() names one of the pages that are in; only if there are any.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual void Insert(BlockId id) = 0;
  virtual void Remove(BlockId id) = 0;
  virtual BlockId Victim() const = 0;

  // The policy has so many pages, properly linked. O(pages).
  virtual Status CheckIntegrity(int32_t num_pages) const {
    static_cast<void>(num_pages);
    return OkStatus();
  }
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_EVICTION_EVICTION_POLICY_H_
