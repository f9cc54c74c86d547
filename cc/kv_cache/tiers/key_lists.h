// File: cc/kv_cache/tiers/key_lists.h
// A few lists of keys, each from least to most recently used, and where each key is: a key is in
// one list at most. All operations are O(1); memory grows with the number of keys.
//
//   KeyLists lists(2);
//   lists.PushBack(0, key);
//   lists.Find(key);            // 0
//   lists.PushBack(1, key);     // moves it
#ifndef PAGEMILL_CC_KV_CACHE_TIERS_KEY_LISTS_H_
#define PAGEMILL_CC_KV_CACHE_TIERS_KEY_LISTS_H_

#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/tiers/content_key.h"

namespace pagemill::kv_cache {

class KeyLists {
 public:
  explicit KeyLists(size_t num_lists) : lists_(num_lists) {}

  const std::list<ContentKey>& list(size_t i) const { return lists_[i]; }
  size_t size(size_t i) const { return lists_[i].size(); }
  // The list that the key is in.
  std::optional<size_t> Find(const ContentKey& key) const;
  // Makes the key the most recently used one of list `i`, wherever it was before.
  void PushBack(size_t i, const ContentKey& key);
  void Erase(const ContentKey& key);  // nothing if it is in no list
  void PopFront(size_t i);            // not where the list is empty

  Status CheckIntegrity() const;

 private:
  struct Place {
    size_t list;
    std::list<ContentKey>::iterator at;
  };
  std::vector<std::list<ContentKey>> lists_;
  std::unordered_map<ContentKey, Place, ContentKeyHash> places_;  // never iterated
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_TIERS_KEY_LISTS_H_
