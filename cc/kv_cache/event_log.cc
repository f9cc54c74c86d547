#include "cc/kv_cache/event_log.h"

#include <algorithm>
#include <utility>

namespace pagemill::kv_cache {

EventLog::EventLog(int32_t capacity) : capacity_(static_cast<size_t>(capacity)) {
  PAGEMILL_CHECK(capacity >= 1);
}

void EventLog::Append(KvEvent event) {
  event.sequence = next_sequence();
  events_.push_back(std::move(event));
  if (events_.size() <= capacity_) return;
  events_.pop_front();
  ++first_;
}

void EventLog::Removed(const BlockHash& hash, GroupId group) {
  KvEvent event;
  event.type = KvEvent::Type::kRemoved;
  event.group = group;
  event.hashes = {hash};
  Append(std::move(event));
}

void EventLog::Cleared() {
  KvEvent event;
  event.type = KvEvent::Type::kCleared;
  Append(std::move(event));
}

StatusOr<std::vector<KvEvent>> EventLog::Since(uint64_t sequence, size_t max_events) const {
  if (sequence < first_) {
    return NotFound("KV event " + std::to_string(sequence) + " is not kept any more; the oldest " +
                    "is " + std::to_string(first_) + " (max_events " + std::to_string(capacity_) +
                    "): start over from the current state");
  }
  if (sequence > next_sequence()) {
    return InvalidArgument("KV event " + std::to_string(sequence) + " does not exist yet; the " +
                           "next one is " + std::to_string(next_sequence()));
  }
  const auto begin = events_.begin() + static_cast<ptrdiff_t>(sequence - first_);
  const size_t count = std::min(max_events, static_cast<size_t>(events_.end() - begin));
  return std::vector<KvEvent>(begin, begin + static_cast<ptrdiff_t>(count));
}

}  // namespace pagemill::kv_cache
