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

// A listener that lost what it was sent asks again, from any number that is kept, any number of
// times.
TEST(EventLog, EventsAreReplayedAsTheyWere) {
  EventLog log(100);
  for (uint64_t i = 1; i <= 20; ++i) log.Removed(HashOf(i), GroupId(0));
  for (uint64_t from : {1u, 7u, 20u}) {
    for (int k = 0; k < 2; ++k) {
      const std::vector<KvEvent> events = *log.Since(from);
      ASSERT_EQ(events.size(), 21 - from);
      for (size_t i = 0; i < events.size(); ++i) {
        EXPECT_EQ(events[i].sequence, from + i);
        EXPECT_EQ(events[i].hashes, std::vector<BlockHash>{HashOf(from + i)});
      }
    }
  }
}

TEST(EventLog, AGapIsToldApartFromNoNews) {
  EventLog log(2);
  uint64_t next = log.next_sequence();
  EXPECT_TRUE(log.Since(next)->empty());  // no news
  for (int i = 0; i < 3; ++i) log.Cleared();
  const Status gap = log.Since(next).status();
  EXPECT_EQ(gap.code(), StatusCode::kNotFound);
  EXPECT_NE(gap.message().find("the oldest is 2"), std::string::npos);
  EXPECT_NE(gap.message().find("max_events 2"), std::string::npos);
  next = log.next_sequence();
  EXPECT_TRUE(log.Since(next)->empty());
}

TEST(EventLog, WhatIsTooOldIsAnAnswer) {
  EventLog log(3);
  for (int i = 0; i < 5; ++i) log.Cleared();
  EXPECT_EQ(log.Since(3)->front().sequence, 3u);
  EXPECT_EQ(log.Since(3)->size(), 3u);
  EXPECT_EQ(log.Since(3, 2)->size(), 2u);
  EXPECT_EQ(log.Since(3, 2)->back().sequence, 4u);
  EXPECT_EQ(log.Since(3, 9)->size(), 3u);
  EXPECT_EQ(log.Since(2).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(log.Since(6)->empty());
  EXPECT_EQ(log.Since(7).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pagemill::kv_cache
