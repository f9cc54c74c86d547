#include "cc/kv_cache/tiers/key_lists.h"

namespace pagemill::kv_cache {

std::optional<size_t> KeyLists::Find(const ContentKey& key) const {
  const auto found = places_.find(key);
  if (found == places_.end()) return std::nullopt;
  return found->second.list;
}

void KeyLists::PushBack(size_t i, const ContentKey& key) {
  const auto found = places_.find(key);
  if (found == places_.end()) {
    places_[key] = {i, lists_[i].insert(lists_[i].end(), key)};
    return;
  }
  lists_[i].splice(lists_[i].end(), lists_[found->second.list], found->second.at);
  found->second.list = i;
}

void KeyLists::Erase(const ContentKey& key) {
  const auto found = places_.find(key);
  if (found == places_.end()) return;
  lists_[found->second.list].erase(found->second.at);
  places_.erase(found);
}

void KeyLists::PopFront(size_t i) {
  places_.erase(lists_[i].front());
  lists_[i].pop_front();
}

Status KeyLists::CheckIntegrity() const {
  size_t total = 0;
  for (size_t i = 0; i < lists_.size(); ++i) {
    for (const ContentKey& key : lists_[i]) {
      ++total;
      if (Find(key) != i) return Internal("key lists: a key is not where its place says");
    }
  }
  if (total != places_.size()) return Internal("key lists: a place without a key");
  return OkStatus();
}

}  // namespace pagemill::kv_cache
