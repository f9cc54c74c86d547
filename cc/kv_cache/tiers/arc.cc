#include "cc/kv_cache/tiers/arc.h"

#include <algorithm>

namespace pagemill::kv_cache {

// A hit among the ghosts of a half says that this half was too small.
size_t ArcReplacement::Adapted(std::optional<size_t> from) const {
  const size_t b1 = lists_.size(kB1), b2 = lists_.size(kB2);
  if (from == kB1) return std::min(capacity_, target_ + std::max<size_t>(1, b2 / b1));
  if (from == kB2) return target_ - std::min(target_, std::max<size_t>(1, b1 / b2));
  return target_;
}

std::optional<ContentKey> ArcReplacement::Choose(std::optional<size_t> from, size_t target,
                                                 const MayEvict& may_evict) const {
  const size_t t1 = lists_.size(kT1);
  const bool first = t1 > 0 && (t1 > target || (from == kB2 && t1 == target));
  for (const List list : {first ? kT1 : kT2, first ? kT2 : kT1}) {
    const auto& keys = lists_.list(list);
    const auto victim = std::find_if(keys.begin(), keys.end(), may_evict);
    if (victim != keys.end()) return *victim;
  }
  return std::nullopt;
}

Replacement::Admission ArcReplacement::Admit(const ContentKey& key, const MayEvict& may_evict) {
  const std::optional<size_t> from = lists_.Find(key);
  const size_t target = Adapted(from);
  Admission admission;
  if (lists_.size(kT1) + lists_.size(kT2) >= capacity_) {
    // New content while T1 and its ghosts fill the capacity: where T1 alone does, its oldest leaves
    // without a ghost.
    admission.victim = Choose(from, target, may_evict);
    if (!admission.victim) return admission;
    const bool once = lists_.Find(*admission.victim) == kT1;
    lists_.PushBack(once ? kB1 : kB2, *admission.victim);
  }
  target_ = target;
  lists_.PushBack(from ? kT2 : kT1, key);
  TrimGhosts();
  admission.admitted = true;
  return admission;
}

// |T1| + |B1| <= capacity, and all four together <= 2 * capacity.
void ArcReplacement::TrimGhosts() {
  while (lists_.size(kB1) > 0 && lists_.size(kT1) + lists_.size(kB1) > capacity_) {
    lists_.PopFront(kB1);
  }
  const size_t others = lists_.size(kT1) + lists_.size(kT2) + lists_.size(kB1);
  while (lists_.size(kB2) > 0 && others + lists_.size(kB2) > 2 * capacity_) lists_.PopFront(kB2);
}

Status ArcReplacement::CheckIntegrity() const {
  const size_t t1 = lists_.size(kT1), t2 = lists_.size(kT2);
  const size_t b1 = lists_.size(kB1), b2 = lists_.size(kB2);
  if (t1 + t2 > capacity_) return Internal("arc: more residents than its capacity");
  if (t1 + b1 > capacity_) return Internal("arc: more content used once than its capacity");
  if (t1 + t2 + b1 + b2 > 2 * capacity_) return Internal("arc: too many ghosts");
  if (target_ > capacity_) return Internal("arc: the target is beyond the capacity");
  return lists_.CheckIntegrity();
}

}  // namespace pagemill::kv_cache
