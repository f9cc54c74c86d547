// Every parked state: who parks, what wakes them, and that an abort finds them there.
#include <string>
#include <utility>
#include <vector>

#include "cc/scheduler/testing/scheduler_fixture.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

class ParkedTest : public SchedulerTest {
 protected:
  int64_t NumParked(ParkReason reason) const {
    return scheduler_->stats().num_parked[static_cast<size_t>(reason)];
  }
  void ExpectAbortable(uint64_t id) {
    events_.clear();
    EXPECT_TRUE(scheduler_->Abort(RequestId(id), &events_));
    ASSERT_EQ(events_.size(), 1u);
    EXPECT_EQ(events_[0].finish_reason, FinishReason::kAbort);
    EXPECT_TRUE(scheduler_->CheckIntegrity().ok());
  }
};

TEST_F(ParkedTest, HeldUntilReleased) {
  Start(SmallOptions());
  Request held = MakeRequest(1, 5, 3);
  held.starts_held = true;
  Add(held);
  Add(MakeRequest(2, 4, 3));
  EXPECT_EQ(Step(), "2:4");
  EXPECT_EQ(NumParked(ParkReason::kHeld), 1);
  EXPECT_EQ(scheduler_->stats().num_waiting, 0);
  EXPECT_TRUE(scheduler_->Release(RequestId(1)));
  EXPECT_EQ(NumParked(ParkReason::kHeld), 0);
  EXPECT_EQ(Step(), "2:1 1:5");
  EXPECT_FALSE(scheduler_->Release(RequestId(1)));  // it waits for nothing any more
  EXPECT_FALSE(scheduler_->Release(RequestId(7)));
}

TEST_F(ParkedTest, AReleasedRequestHasThePlaceOfItsArrival) {
  Start(SmallOptions());
  Request held = MakeRequest(1, 5, 3);
  held.starts_held = true;
  Add(held);
  Add(MakeRequest(2, 4, 3));
  EXPECT_TRUE(scheduler_->Release(RequestId(1)));
  EXPECT_EQ(Step(), "1:5 2:4");
}

TEST_F(ParkedTest, AHeldRequestCanBeAborted) {
  Start(SmallOptions());
  Request held = MakeRequest(1, 5, 3);
  held.starts_held = true;
  Add(held);
  ExpectAbortable(1);
  EXPECT_FALSE(scheduler_->HasWork());
  EXPECT_FALSE(scheduler_->Release(RequestId(1)));
}

TEST_F(ParkedTest, PrefixInFlightIsComputedOnceForAllSamples) {
  Start(SmallOptions());
  // Four samples of one prompt of 23 tokens, which takes two steps.
  for (uint64_t id : {1, 11, 21, 31}) Add(MakeRequest(id, 23, 3));
  EXPECT_EQ(Step(), "1:16");
  EXPECT_EQ(NumParked(ParkReason::kPrefixInFlight), 0);  // the budget ended before they came up
  EXPECT_EQ(Step(), "1:7");
  EXPECT_EQ(NumParked(ParkReason::kPrefixInFlight), 0);  // and the block is there now
  EXPECT_EQ(Step(), "1:1 11:3 21:3 31:3");
  EXPECT_EQ(scheduler_->stats().prefix_cache_hit_tokens, 60u);
}

TEST_F(ParkedTest, PrefixInFlightParksUntilItIsCommitted) {
  Start(SmallOptions());
  for (uint64_t id : {1, 11, 21, 2}) Add(MakeRequest(id, 6, 3));
  // Two others share a block with the first; the last one does not and passes them.
  EXPECT_EQ(Step(), "1:6 2:6");
  EXPECT_EQ(NumParked(ParkReason::kPrefixInFlight), 0) << "committed: they wait for their turn";
  EXPECT_EQ(Step(), "1:1 2:1 11:2 21:2");
}

TEST_F(ParkedTest, PrefixInFlightIsWaitedForToTheLastSharedBlock) {
  SchedulerOptions options = SmallOptions();
  options.long_prefill_token_threshold = 4;
  Start(options);
  Add(MakeRequest(1, 20, 3));
  Request other = MakeRequest(11, 20, 3);
  std::vector<int32_t> prompt = other.prompt_token_ids.ToVector();
  prompt[13] = 50;  // three blocks are equal
  other.prompt_token_ids = std::move(prompt);
  Add(other);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Schedule(), "1:4");
    EXPECT_EQ(NumParked(ParkReason::kPrefixInFlight), 1);
    Finish();
  }
  EXPECT_EQ(Step(), "1:4 11:4");
  EXPECT_EQ(plan_.scheduled[1].num_computed_tokens, 12);
}

TEST_F(ParkedTest, PrefixInFlightEndsWithItsComputer) {
  Start(SmallOptions());
  Add(MakeRequest(1, 12, 3));
  Add(MakeRequest(11, 12, 3));
  EXPECT_EQ(Schedule(), "1:12");
  EXPECT_EQ(NumParked(ParkReason::kPrefixInFlight), 1);
  ExpectAbortable(1);
  EXPECT_EQ(NumParked(ParkReason::kPrefixInFlight), 0);
  Finish();
  EXPECT_EQ(Step(), "11:12");
}

TEST_F(ParkedTest, ARequestThatWaitsForAPrefixInFlightCanBeAborted) {
  Start(SmallOptions());
  Add(MakeRequest(1, 12, 3));
  Add(MakeRequest(11, 12, 3));
  EXPECT_EQ(Schedule(), "1:12");
  ExpectAbortable(11);
  Finish();
  EXPECT_EQ(Step(), "1:1");
}

TEST_F(ParkedTest, APrefixInFlightUnderAnotherSaltIsNotWaitedFor) {
  Start(SmallOptions());
  Add(MakeRequest(1, 8, 3));
  Request salted = MakeRequest(11, 8, 3);
  salted.cache_salt = "x";
  Add(salted);
  EXPECT_EQ(Step(), "1:8 11:8");
}

}  // namespace
}  // namespace pagemill::scheduler
