// File: cc/kv_cache/tiers/lru.h
// Least recently used goes first.
#ifndef PAGEMILL_CC_KV_CACHE_TIERS_LRU_H_
#define PAGEMILL_CC_KV_CACHE_TIERS_LRU_H_

#include "cc/kv_cache/tiers/key_lists.h"
#include "cc/kv_cache/tiers/replacement.h"

namespace pagemill::kv_cache {

class LruReplacement final : public Replacement {
 public:
  explicit LruReplacement(int64_t capacity) : capacity_(static_cast<size_t>(capacity)) {}

  Admission Admit(const ContentKey& key, const MayEvict& may_evict) override;
  void Touch(const ContentKey& key) override { residents_.PushBack(0, key); }
  void Erase(const ContentKey& key) override { residents_.Erase(key); }
  Status CheckIntegrity() const override;

 private:
  const size_t capacity_;
  KeyLists residents_{1};
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_TIERS_LRU_H_
