// File: cc/kv_cache/testing/event_mirror.h
// What a listener of KV events knows: which content can be hit. A simple reference of
// the prefix cache, and a check that the events are complete.
//
//   EventMirror mirror;
//   if (!mirror.Follow(*cache.events())) ...   // events are lost: nothing is known any more
//   mirror.size();                             // the cache's num_cached_blocks()
//
// Tests only. Thread safety: none.
#ifndef PAGEMILL_CC_KV_CACHE_TESTING_EVENT_MIRROR_H_
#define PAGEMILL_CC_KV_CACHE_TESTING_EVENT_MIRROR_H_

#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <utility>

#include "cc/kv_cache/event_log.h"

namespace pagemill::kv_cache {

class EventMirror {
 public:
  // Applies the events since the last call. False where some of them are not kept any more: then
  // the mirror is not in_step() until it hears that everything was cleared.
  bool Follow(const EventLog& log);

  bool in_step() const { return in_step_; }
  int32_t size() const { return static_cast<int32_t>(contents_.size()); }
  bool Has(const BlockHash& hash, GroupId group) const {
    return contents_.contains({group, hash.words});
  }
  // How many blocks from the start of the chain are there, of a group with blocks of `stride` of
  // the cache's.
  int32_t NumLeading(std::span<const BlockHash> hashes, int32_t stride, GroupId group) const;

 private:
  void Apply(const KvEvent& event);

  uint64_t next_ = 1;
  bool in_step_ = true;
  std::set<std::pair<GroupId, std::array<uint64_t, 4>>> contents_;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_TESTING_EVENT_MIRROR_H_
