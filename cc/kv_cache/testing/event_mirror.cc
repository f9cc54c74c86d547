#include "cc/kv_cache/testing/event_mirror.h"

#include "gtest/gtest.h"

namespace pagemill::kv_cache {

bool EventMirror::Follow(const EventLog& log) {
  const StatusOr<std::vector<KvEvent>> events = log.Since(next_);
  if (!events.ok()) {
    EXPECT_EQ(events.status().code(), StatusCode::kNotFound);
    contents_.clear();
    next_ = log.next_sequence();
    in_step_ = false;
    return false;
  }
  for (const KvEvent& event : *events) {
    EXPECT_EQ(event.sequence, next_++);
    Apply(event);
  }
  EXPECT_EQ(next_, log.next_sequence());
  return true;
}

void EventMirror::Apply(const KvEvent& event) {
  if (event.type == KvEvent::Type::kCleared) {
    contents_.clear();
    in_step_ = true;
    return;
  }
  if (!in_step_) return;
  for (const BlockHash& hash : event.hashes) {
    const std::pair content(event.group, hash.words);
    if (event.type == KvEvent::Type::kStored) {
      EXPECT_TRUE(contents_.insert(content).second) << "stored twice";
    } else {
      EXPECT_EQ(contents_.erase(content), 1u) << "removed, but not stored";
    }
  }
  if (event.type != KvEvent::Type::kStored) return;
  EXPECT_EQ(event.token_ids.size(), event.hashes.size() * static_cast<size_t>(event.block_size));
}

int32_t EventMirror::NumLeading(std::span<const BlockHash> hashes, int32_t stride,
                                GroupId group) const {
  int32_t n = 0;
  for (size_t last = static_cast<size_t>(stride) - 1; last < hashes.size();
       last += static_cast<size_t>(stride)) {
    if (!Has(hashes[last], group)) break;
    ++n;
  }
  return n;
}

}  // namespace pagemill::kv_cache
