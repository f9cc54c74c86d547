#include "cc/kv_cache/tiers/lru.h"

#include <algorithm>

namespace pagemill::kv_cache {

Replacement::Admission LruReplacement::Admit(const ContentKey& key, const MayEvict& may_evict) {
  Admission admission;
  if (residents_.size(0) >= capacity_) {
    const auto& keys = residents_.list(0);
    const auto victim = std::find_if(keys.begin(), keys.end(), may_evict);
    if (victim == keys.end()) return admission;
    admission.victim = *victim;
    residents_.Erase(*admission.victim);
  }
  residents_.PushBack(0, key);
  admission.admitted = true;
  return admission;
}

Status LruReplacement::CheckIntegrity() const {
  if (residents_.size(0) > capacity_) return Internal("lru: more residents than its capacity");
  return residents_.CheckIntegrity();
}

}  // namespace pagemill::kv_cache
