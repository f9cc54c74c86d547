// File: cc/kv_cache/tiers/replacement.h
// Which content a tier keeps: the choice of what makes room, as a policy behind one interface.
// Implementations: lru.h, arc.h; replacement.cc has the table.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<Replacement> policy, MakeReplacement("arc",
//   capacity)); Replacement::Admission admission = policy->Admit(key, may_evict); if
//   (admission.admitted && admission.victim) ... the victim is not resident any more ...
//   policy->Touch(key);   // it was used
#ifndef PAGEMILL_CC_KV_CACHE_TIERS_REPLACEMENT_H_
#define PAGEMILL_CC_KV_CACHE_TIERS_REPLACEMENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "cc/base/status.h"
#include "cc/kv_cache/tiers/content_key.h"

namespace pagemill::kv_cache {

// Obligations of an implementer:
// 1. At most `capacity` keys are resident: admitted, and since then neither a victim nor erased.
//    Memory is O(capacity).
// 2. Admit() makes a key that is not resident so. Where that needs room it names one victim for
//    which `may_evict` is true; if there is none, it refuses and nothing has changed.
// 3. Choices depend on the calls only; nothing costs more than O(residents that may not be
// evicted).
class Replacement {
 public:
  struct Admission {
    bool admitted = false;
    std::optional<ContentKey> victim;
  };
  using MayEvict = std::function<bool(const ContentKey&)>;

  virtual ~Replacement() = default;
  virtual Admission Admit(const ContentKey& key, const MayEvict& may_evict) = 0;
  virtual void Touch(const ContentKey& key) = 0;  // a resident was used
  virtual void Erase(const ContentKey& key) = 0;  // a resident's content is gone
  virtual Status CheckIntegrity() const { return OkStatus(); }
};

// "lru" or "arc"; kInvalidArgument lists them, and refuses a capacity below 1.
StatusOr<std::unique_ptr<Replacement>> MakeReplacement(std::string_view name, int64_t capacity);

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_TIERS_REPLACEMENT_H_
