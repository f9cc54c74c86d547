// File: cc/kv_cache/tiers/arc.h
// Adaptive replacement: content that was used once (T1) and content that was used again (T2)
// share the capacity. Ghosts (B1, B2), keys of what left either half, say which half was too small,
// and the border moves. A scan of content that is not used again passes through T1 and leaves T2.
//
// Source: Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003. Two
// things are added: residents that may not leave now are passed over, and content may be erased.
#ifndef PAGEMILL_CC_KV_CACHE_TIERS_ARC_H_
#define PAGEMILL_CC_KV_CACHE_TIERS_ARC_H_

#include "cc/kv_cache/tiers/key_lists.h"
#include "cc/kv_cache/tiers/replacement.h"

namespace pagemill::kv_cache {

class ArcReplacement final : public Replacement {
 public:
  explicit ArcReplacement(int64_t capacity) : capacity_(static_cast<size_t>(capacity)) {}

  Admission Admit(const ContentKey& key, const MayEvict& may_evict) override;
  void Touch(const ContentKey& key) override { lists_.PushBack(kT2, key); }
  void Erase(const ContentKey& key) override { lists_.Erase(key); }
  Status CheckIntegrity() const override;

  size_t target() const { return target_; }  // the size that T1 should have

 private:
  enum List : size_t { kT1, kT2, kB1, kB2 };

  // The resident that is evicted for a key that comes from list `from`, if any.
  std::optional<ContentKey> Choose(std::optional<size_t> from, size_t target,
                                   const MayEvict& may_evict) const;
  size_t Adapted(std::optional<size_t> from) const;
  void TrimGhosts();

  const size_t capacity_;
  size_t target_ = 0;
  KeyLists lists_{4};
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_TIERS_ARC_H_
