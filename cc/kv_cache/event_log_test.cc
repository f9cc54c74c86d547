#include "cc/kv_cache/event_log.h"

#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

BlockHash HashOf(uint64_t content) { return BlockHash{{content, 1, 0, 0}}; }

TEST(EventLog, NumbersHaveNoGaps) {
  EventLog log(10);
  EXPECT_EQ(log.next_sequence(), 1u);
  EXPECT_TRUE(log.Since(1)->empty());
  log.Removed(HashOf(7), GroupId(2));
  log.Cleared();
  const std::vector<KvEvent> events = *log.Since(1);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].sequence, 1u);
  EXPECT_EQ(events[0].type, KvEvent::Type::kRemoved);
  EXPECT_EQ(events[0].hashes, std::vector<BlockHash>{HashOf(7)});
  EXPECT_EQ(events[0].group, GroupId(2));
  EXPECT_EQ(events[1].sequence, 2u);
  EXPECT_EQ(events[1].type, KvEvent::Type::kCleared);
  EXPECT_EQ(log.Since(2)->size(), 1u);
}

TEST(EventLog, WhatIsTooOldIsAnAnswer) {
  EventLog log(3);
  for (int i = 0; i < 5; ++i) log.Cleared();
  EXPECT_EQ(log.Since(3)->front().sequence, 3u);
  EXPECT_EQ(log.Since(3)->size(), 3u);
  EXPECT_EQ(log.Since(2).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(log.Since(6)->empty());
  EXPECT_EQ(log.Since(7).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pagemill::kv_cache
