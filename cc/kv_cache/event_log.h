// File: cc/kv_cache/event_log.h
// What other processes need to know about the prefix cache (a router, a remote tier): which content
// came, and which went. Events have numbers without gaps; the latest ones are kept, so that a
// listener that lost some can ask for them again.
//
//   EventLog log(10000);
//   PAGEMILL_ASSIGN_OR_RETURN(std::vector<KvEvent> events, log.Since(next));   // kNotFound: too
//   old next += events.size();
//
// A listener that comes too late has no way to know what it missed: it must read the state again,
// or start from nothing after the next kCleared.
//
// Thread safety: none.
#ifndef PAGEMILL_CC_KV_CACHE_EVENT_LOG_H_
#define PAGEMILL_CC_KV_CACHE_EVENT_LOG_H_

#include <cstdint>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/block.h"

namespace pagemill::kv_cache {

struct KvEvent {
  enum class Type {
    kStored,   // the blocks can be hit from now on
    kRemoved,  // not any more
    kCleared,  // nothing can be hit any more; `hashes` is empty
  };

  uint64_t sequence = 0;  // 1 for the first event
  Type type = Type::kStored;
  GroupId group;
  std::string medium = "pool";  // where the content is: "pool", or the name of a tier
  std::vector<BlockHash> hashes;
  // Of kStored only. `hashes` follow one another: the first one's parent is `parent`, empty at the
  // start of a sequence, and block i has token_ids [i * block_size, (i + 1) * block_size) and
  // extra_keys[i] (ExtraKeys() of block_hash.h).
  BlockHash parent;
  int32_t block_size = 0;  // tokens
  std::vector<int32_t> token_ids;
  std::vector<std::string> extra_keys;
};

class EventLog {
 public:
  // Keeps the last `capacity` events, at least 1.
  explicit EventLog(int32_t capacity);

  // Gives the event the next number.
  void Append(KvEvent event);
  void Removed(const BlockHash& hash, GroupId group);
  void Cleared();

  // Number of the oldest event that is kept; next_sequence() if none is.
  uint64_t first_sequence() const { return first_; }
  // Number of the next event.
  uint64_t next_sequence() const { return first_ + events_.size(); }
  // The events from number `sequence` on, at most the first `max_events` of them. kNotFound if some
  // of them are not kept any more, kInvalidArgument above next_sequence().
  StatusOr<std::vector<KvEvent>> Since(
      uint64_t sequence, size_t max_events = std::numeric_limits<size_t>::max()) const;

 private:
  const size_t capacity_;
  uint64_t first_ = 1;  // number of the oldest event that is kept
  std::deque<KvEvent> events_;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_EVENT_LOG_H_
