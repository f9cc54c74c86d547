// Pause and resume, deadlines, resets of the prefix cache.
#include <optional>
#include <string>
#include <vector>

#include "cc/scheduler/testing/scheduler_fixture.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

class PauseTest : public SchedulerTest {
 protected:
  int64_t num_paused() const {
    return scheduler_->stats().num_parked[static_cast<size_t>(ParkReason::kPaused)];
  }
  // Two run, one waits for a slot.
  void StartThree() {
    SchedulerOptions options = SmallOptions();
    options.max_num_seqs = 2;
    Start(options);
    for (uint64_t id : {1, 2, 3}) Add(MakeRequest(id, 3, 3));
    EXPECT_EQ(Step(), "1:3 2:3");
    events_.clear();
  }
};

TEST_F(PauseTest, KeepPlansNothingAndLosesNothing) {
  StartThree();
  scheduler_->Pause(PauseMode::kKeep, &events_);
  Add(MakeRequest(4, 3, 3));
  EXPECT_EQ(Step(), "");
  EXPECT_EQ(scheduler_->stats().num_running, 2);
  EXPECT_TRUE(events_.empty());
  scheduler_->Resume();
  EXPECT_EQ(Step(), "1:1 2:1");
}

TEST_F(PauseTest, KeepTakesResultsOfStepsInFlight) {
  StartThree();
  EXPECT_EQ(Schedule(), "1:1 2:1");
  scheduler_->Pause(PauseMode::kKeep, &events_);
  Finish();
  EXPECT_EQ(events_.size(), 2u);
}

TEST_F(PauseTest, WaitLetsTheRunningFinishAndNobodyStart) {
  StartThree();
  scheduler_->Pause(PauseMode::kWait, &events_);
  Add(MakeRequest(4, 3, 3));
  EXPECT_EQ(num_paused(), 2);
  EXPECT_EQ(Step(), "1:1 2:1");
  EXPECT_EQ(Step(), "1:1 2:1");
  EXPECT_EQ(Step(), "");
  EXPECT_EQ(scheduler_->stats().num_running, 0);
  EXPECT_EQ(num_paused(), 2);
  scheduler_->Resume();
  EXPECT_EQ(Step(), "3:3 4:3");
}

TEST_F(PauseTest, WaitLetsThePreemptedFinishToo) {
  StartThree();
  EXPECT_TRUE(scheduler_->ResetPrefixCache(/*preempt_running=*/true));
  scheduler_->Pause(PauseMode::kWait, &events_);
  EXPECT_EQ(Step(), "1:4 2:4");
  EXPECT_EQ(num_paused(), 1);
}

TEST_F(PauseTest, AbortEndsAllInTheOrderOfTheirArrival) {
  StartThree();
  scheduler_->Pause(PauseMode::kAbort, &events_);
  ASSERT_EQ(events_.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(events_[i].id, RequestId(i + 1));
    EXPECT_EQ(events_[i].finish_reason, FinishReason::kAbort);
  }
  EXPECT_EQ(scheduler_->stats().kv_blocks_used, 0);
  Add(MakeRequest(5, 3, 3));
  EXPECT_EQ(Step(), "");
  scheduler_->Resume();
  EXPECT_EQ(Step(), "5:3");
}

TEST_F(PauseTest, APausedRequestCanBeAborted) {
  StartThree();
  scheduler_->Pause(PauseMode::kWait, &events_);
  EXPECT_TRUE(scheduler_->Abort(RequestId(3), &events_));
  EXPECT_EQ(num_paused(), 0);
  EXPECT_TRUE(scheduler_->CheckIntegrity().ok());
}

TEST_F(PauseTest, AHeldRequestReleasedInAPauseWaitsForItsEnd) {
  Start(SmallOptions());
  Request held = MakeRequest(1, 3, 3);
  held.starts_held = true;
  Add(held);
  scheduler_->Pause(PauseMode::kWait, &events_);
  EXPECT_TRUE(scheduler_->Release(RequestId(1)));
  EXPECT_EQ(Step(), "");
  scheduler_->Resume();
  EXPECT_EQ(Step(), "1:3");
}

class ResetTest : public SchedulerTest {};

TEST_F(ResetTest, IsRefusedWhileRequestsRun) {
  Start(SmallOptions());
  Add(MakeRequest(1, 6, 3));
  Step();
  EXPECT_FALSE(scheduler_->ResetPrefixCache());
  scheduler_->Abort(RequestId(1), &events_);
  EXPECT_TRUE(scheduler_->ResetPrefixCache());
}

TEST_F(ResetTest, MayPreemptTheRunningWhichThenComputeAllAgain) {
  Start(SmallOptions());
  const Request request = MakeRequest(1, 6, 3);
  Add(request);
  Step();
  EXPECT_EQ(Schedule(), "1:1");
  EXPECT_TRUE(scheduler_->ResetPrefixCache(/*preempt_running=*/true));
  Finish();
  EXPECT_TRUE(events_.empty());  // the late result of the step in flight is dropped
  EXPECT_EQ(Step(), "1:7");
  EXPECT_EQ(events_[0].new_token_ids[0],
            FakeModel::Continue(request.prompt_token_ids, 2, 97).back());
}

class DeadlineTest : public SchedulerTest {
 protected:
  void Expire(int64_t now_us) {
    events_.clear();
    scheduler_->Expire(now_us, &events_);
    const Status status = scheduler_->CheckIntegrity();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
};

TEST_F(DeadlineTest, WhoDoesNotStartInTimeEnds) {
  SchedulerOptions options = SmallOptions();
  options.max_num_seqs = 1;
  Start(options);
  Add(MakeRequest(1, 3, 9));
  Request late = MakeRequest(2, 3, 3);
  late.start_deadline_us = 1000;
  Add(late);
  EXPECT_EQ(scheduler_->next_deadline_us(), 1000);
  Step();
  Expire(999);
  EXPECT_TRUE(events_.empty());
  Expire(1000);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].id, RequestId(2));
  EXPECT_EQ(events_[0].finish_reason, FinishReason::kError);
  EXPECT_EQ(events_[0].error.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(events_[0].error.message().find("start"), std::string::npos);
}

TEST_F(DeadlineTest, WhoStartedInTimeMayGoOn) {
  Start(SmallOptions());
  Request request = MakeRequest(1, 3, 9);
  request.start_deadline_us = 1000;
  Add(request);
  Step();
  EXPECT_EQ(scheduler_->next_deadline_us(), std::nullopt);
  Expire(5000);
  EXPECT_TRUE(events_.empty());
}

TEST_F(DeadlineTest, ARunningRequestEndsAtItsDeadline) {
  Start(SmallOptions());
  Request request = MakeRequest(1, 3, 9);
  request.start_deadline_us = 1000;
  request.deadline_us = 2000;
  Add(request);
  Step();
  EXPECT_EQ(Schedule(), "1:1");
  Expire(2000);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_NE(events_[0].error.message().find("end"), std::string::npos);
  EXPECT_EQ(scheduler_->stats().kv_blocks_used, 0);
  Finish();
  EXPECT_TRUE(events_.empty());
}

TEST_F(DeadlineTest, EventsComeInTheOrderOfTheDeadlinesThenOfArrival) {
  Start(SmallOptions());
  for (uint64_t id : {4, 1, 3, 2}) {
    Request request = MakeRequest(id, 3, 9);
    request.deadline_us = id == 4 ? 3000 : 1000;
    request.starts_held = id == 1;
    Add(request);
  }
  Expire(9000);
  ASSERT_EQ(events_.size(), 4u);
  EXPECT_EQ(events_[0].id, RequestId(1));
  EXPECT_EQ(events_[1].id, RequestId(3));
  EXPECT_EQ(events_[2].id, RequestId(2));
  EXPECT_EQ(events_[3].id, RequestId(4));
  EXPECT_FALSE(scheduler_->HasWork());
}

}  // namespace
}  // namespace pagemill::scheduler
