// Every parked state: who parks, what wakes them, and that an abort finds them there.
#include <string>
#include <vector>

#include "cc/scheduler/scheduler_fixture.h"
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

}  // namespace
}  // namespace pagemill::scheduler
