// Concurrent partial prefills.
#include <string>

#include "cc/scheduler/testing/scheduler_fixture.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

class PrefillTest : public SchedulerTest {
 protected:
  static SchedulerOptions Options(int32_t partial, int32_t threshold, int32_t long_partial) {
    SchedulerOptions options = SmallOptions();
    options.max_partial_prefills = partial;
    options.long_prefill_token_threshold = threshold;
    options.max_long_partial_prefills = long_partial;
    return options;
  }
  int64_t num_parked() const {
    return scheduler_->stats().num_parked[static_cast<size_t>(ParkReason::kLongPrefill)];
  }
};

TEST_F(PrefillTest, PartialPrefillsShareTheTokensOfAStep) {
  Start(Options(2, 0, 0));
  Add(MakeRequest(1, 30, 3));
  Add(MakeRequest(2, 30, 3));
  Add(MakeRequest(3, 30, 3));
  EXPECT_EQ(Step(), "1:8 2:8");
  EXPECT_EQ(Step(), "1:8 2:8");
  EXPECT_EQ(Step(), "1:8 2:8");
  EXPECT_EQ(Step(), "1:6 2:6 3:4");  // the first two are cut no more
  EXPECT_EQ(Step(), "1:1 2:1 3:14");
}

TEST_F(PrefillTest, NoMoreThanTheLimitArePartlyComputed) {
  Start(Options(1, 0, 0));
  Add(MakeRequest(1, 20, 3));
  Add(MakeRequest(2, 20, 3));
  EXPECT_EQ(Step(), "1:16");
  EXPECT_EQ(Schedule(), "1:4 2:12");
}

TEST_F(PrefillTest, WhatOneDoesNotUseIsForTheNext) {
  Start(Options(2, 0, 0));
  Add(MakeRequest(1, 5, 3));
  Add(MakeRequest(2, 30, 3));
  EXPECT_EQ(Step(), "1:5 2:11");
}

TEST_F(PrefillTest, AloneAPrefillGetsTheWholeStep) {
  Start(Options(2, 0, 0));
  Add(MakeRequest(1, 30, 3));
  EXPECT_EQ(Step(), "1:16");
}

TEST_F(PrefillTest, DecodingRequestsKeepTheirTokens) {
  Start(Options(2, 0, 0));
  Add(MakeRequest(1, 2, 9));
  Step();
  Add(MakeRequest(2, 40, 3));
  Add(MakeRequest(3, 40, 3));
  EXPECT_EQ(Step(), "1:1 2:7 3:8");
}

TEST_F(PrefillTest, ABudgetLimitsPrefillsAndNotDecodingRequests) {
  Start(SmallOptions());
  Add(MakeRequest(1, 2, 9));
  Add(MakeRequest(2, 2, 9));
  Step();
  EXPECT_EQ(scheduler_->num_decoding(), 2);
  Add(MakeRequest(3, 12, 3));
  Add(MakeRequest(4, 12, 3));
  EXPECT_EQ(Step({.prefill_tokens = 5}), "1:1 2:1 3:5");
  EXPECT_EQ(scheduler_->num_decoding(), 2);
  EXPECT_EQ(Step({.prefill_tokens = 9}), "1:1 2:1 3:7 4:2");
  EXPECT_EQ(Step({.prefill_tokens = 1}), "1:1 2:1 3:1 4:1");
  EXPECT_EQ(Step({.prefill_tokens = 0}), "1:1 2:1 3:1 4:1");  // prompts always advance
  EXPECT_EQ(Step(), "1:1 2:1 4:8");
}

TEST_F(PrefillTest, ABudgetIsSharedByPartialPrefills) {
  Start(Options(2, 0, 0));
  Add(MakeRequest(1, 2, 9));
  Step();
  Add(MakeRequest(2, 20, 3));
  Add(MakeRequest(3, 20, 3));
  EXPECT_EQ(Step({.prefill_tokens = 6}), "1:1 2:3 3:3");
  EXPECT_EQ(Step({.prefill_tokens = 1}), "1:1 2:1");
}

TEST_F(PrefillTest, APromptThatIsNotCutExceedsABudgetAlone) {
  SchedulerOptions options = SmallOptions();
  options.chunked_prefill = false;
  Start(options);
  Add(MakeRequest(1, 2, 9));
  Step();
  Add(MakeRequest(2, 6, 3));
  Add(MakeRequest(3, 6, 3));
  EXPECT_EQ(Step({.prefill_tokens = 4}), "1:1 2:6");
  EXPECT_EQ(Step({.prefill_tokens = 4}), "1:1 2:1 3:6");
}

TEST_F(PrefillTest, ShortPromptsPassLongPrefills) {
  Start(Options(3, 8, 1));
  Add(MakeRequest(1, 20, 3));
  Add(MakeRequest(2, 20, 3));
  Add(MakeRequest(3, 4, 3));
  EXPECT_EQ(Schedule(), "1:5 3:4");
  EXPECT_EQ(num_parked(), 1);
  Finish();
  while (Step().find("1:1") == std::string::npos) {
  }
  EXPECT_EQ(num_parked(), 0);  // the first is through, the second goes on
  EXPECT_TRUE(scheduler_->CheckIntegrity().ok());
}

TEST_F(PrefillTest, ARequestParkedForALongPrefillCanBeAborted) {
  Start(Options(3, 8, 1));
  Add(MakeRequest(1, 20, 3));
  Add(MakeRequest(2, 20, 3));
  Step();
  EXPECT_EQ(num_parked(), 1);
  EXPECT_TRUE(scheduler_->Abort(RequestId(2), &events_));
  EXPECT_EQ(num_parked(), 0);
  EXPECT_TRUE(scheduler_->CheckIntegrity().ok());
}

TEST_F(PrefillTest, ALongPrefillThatGoesAwayMakesRoom) {
  Start(Options(3, 8, 1));
  Add(MakeRequest(1, 20, 3));
  Add(MakeRequest(2, 20, 3));
  Step();
  EXPECT_TRUE(scheduler_->Abort(RequestId(1), &events_));
  EXPECT_EQ(Step(), "2:8");
}

TEST_F(PrefillTest, WhoStartedAndWasParkedIsStillCountedAsStarted) {
  Start(Options(3, 8, 1));
  Add(MakeRequest(1, 20, 9));
  Add(MakeRequest(2, 20, 9));
  while (scheduler_->stats().num_running < 2) Step();
  EXPECT_TRUE(scheduler_->ResetPrefixCache(/*preempt_running=*/true));
  EXPECT_EQ(Step(), "1:8");
  scheduler_->Pause(PauseMode::kWait, &events_);
  EXPECT_TRUE(scheduler_->Abort(RequestId(1), &events_));
  // Nothing runs and nothing is in the queue, but the pause is not complete.
  const SchedulerStats stats = scheduler_->stats();
  EXPECT_EQ(stats.num_running + stats.num_waiting, 0);
  EXPECT_EQ(num_parked(), 1);
  EXPECT_EQ(stats.num_started, 1);
  while (!Step().empty()) {
  }
  EXPECT_EQ(scheduler_->stats().num_started, 0);
}

TEST_F(PrefillTest, ALimitForLongPromptsNeedsToKnowWhichAreLong) {
  const Status status = Options(2, 0, 1).Validate();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("long_prefill_token_threshold"), std::string::npos);
}

}  // namespace
}  // namespace pagemill::scheduler
