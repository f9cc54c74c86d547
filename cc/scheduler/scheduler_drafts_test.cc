// Draft tokens: where they are verified, what limits them, and what becomes of them.
#include <string>
#include <vector>

#include "cc/scheduler/testing/scheduler_fixture.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

class DraftsTest : public SchedulerTest {
 protected:
  static SchedulerOptions Options() {
    SchedulerOptions options = SmallOptions();
    options.max_draft_tokens = 3;
    return options;
  }

  // Reports the plan with the given tokens and proposal for its only entry.
  void Answer(std::vector<int32_t> tokens, std::vector<int32_t> drafts) {
    step::StepResult result;
    result.step_id = plan_.step_id;
    result.results.resize(1);
    result.results[0].index = plan_.scheduled[0].index;
    result.results[0].sampled_token_ids = std::move(tokens);
    result.results[0].draft_token_ids = std::move(drafts);
    events_.clear();
    EXPECT_TRUE(scheduler_->Update(std::move(result), &events_).ok());
    const Status status = scheduler_->CheckIntegrity();
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
};

TEST_F(DraftsTest, AcceptedDraftsAndTheTokenBehindThemAreOutput) {
  Start(Options());
  Add(MakeRequest(1, 5, 20));
  EXPECT_EQ(Schedule(), "1:5");
  Answer({31}, {40, 41, 42});
  EXPECT_EQ(Schedule(), "1:4");
  EXPECT_EQ(plan_.scheduled[0].token_ids, std::vector<int32_t>{31});
  EXPECT_EQ(plan_.scheduled[0].draft_token_ids, (std::vector<int32_t>{40, 41, 42}));
  Answer({40, 41, 42, 43}, {});
  EXPECT_EQ(events_[0].new_token_ids, (std::vector<int32_t>{40, 41, 42, 43}));
  EXPECT_EQ(Schedule(), "1:1");
  EXPECT_EQ(plan_.scheduled[0].num_computed_tokens, 9);
  EXPECT_EQ(plan_.scheduled[0].token_ids, std::vector<int32_t>{43});
}

TEST_F(DraftsTest, RejectedDraftsAreComputedAgain) {
  Start(Options());
  Add(MakeRequest(1, 5, 20));
  Schedule();
  Answer({31}, {40, 41, 42});
  Schedule();
  Answer({40, 60}, {});
  EXPECT_EQ(Schedule(), "1:1");
  EXPECT_EQ(plan_.scheduled[0].num_computed_tokens, 7);
  EXPECT_EQ(plan_.scheduled[0].token_ids, std::vector<int32_t>{60});
  EXPECT_EQ(scheduler_->stats().num_drafts, 1u);
  EXPECT_EQ(scheduler_->stats().draft_tokens, 3u);
  EXPECT_EQ(scheduler_->stats().accepted_draft_tokens, 1u);
  EXPECT_EQ(scheduler_->stats().accepted_drafts_by_position, std::vector<uint64_t>{1});
}

TEST_F(DraftsTest, RejectedDraftsDoNotEnterThePrefixCache) {
  Start(Options());
  Add(MakeRequest(1, 5, 20));
  Schedule();
  Answer({31}, {40, 41, 42});
  Schedule();  // positions 5 to 8: the second block would be full
  Answer({60}, {});
  Request other = MakeRequest(11, 5, 20);
  for (int32_t token : {31, 40, 41, 42}) other.prompt_token_ids.push_back(token);
  Add(other);
  EXPECT_EQ(Schedule(), "1:1 11:5");
  EXPECT_EQ(plan_.scheduled[1].num_computed_tokens, 4);
}

TEST_F(DraftsTest, TokensBehindTheOneThatStopsAreDropped) {
  Start(Options());
  Request request = MakeRequest(1, 5, 20);
  request.sampling.stop_token_ids = {41};
  Add(request);
  Schedule();
  Answer({31}, {40, 41, 42});
  Schedule();
  Answer({40, 41, 42, 43}, {});
  EXPECT_EQ(events_[0].new_token_ids, (std::vector<int32_t>{40, 41}));
  EXPECT_EQ(events_[0].stop_token_id, 41);
  EXPECT_EQ(scheduler_->stats().kv_blocks_used, 0);
}

TEST_F(DraftsTest, MaxTokensCutsDrafts) {
  Start(Options());
  Add(MakeRequest(1, 5, 3));
  Schedule();
  Answer({31}, {40, 41, 42});
  EXPECT_EQ(Schedule(), "1:2");  // one draft, and the token behind it
  Answer({40, 41}, {});
  EXPECT_EQ(events_[0].finish_reason, FinishReason::kLength);
}

TEST_F(DraftsTest, TheContextCutsDrafts) {
  SchedulerOptions options = Options();
  options.max_model_len = 8;
  Start(options);
  Add(MakeRequest(1, 5, 20));
  Schedule();
  Answer({31}, {40, 41, 42});
  EXPECT_EQ(Schedule(), "1:2");
}

TEST_F(DraftsTest, TheTokenBudgetCutsDrafts) {
  SchedulerOptions options = Options();
  options.max_num_tokens = 3;
  Start(options);
  Add(MakeRequest(1, 3, 20));
  Schedule();
  Answer({31}, {40, 41, 42});
  EXPECT_EQ(Schedule(), "1:3");
}

TEST_F(DraftsTest, RowsOfLogitsCutDrafts) {
  SchedulerOptions options = Options();
  options.max_num_logits_rows = 2;
  Start(options);
  Add(MakeRequest(1, 3, 20));
  Schedule();
  Answer({31}, {40, 41, 42});
  EXPECT_EQ(Schedule(), "1:2");
}

TEST_F(DraftsTest, DraftsLeaveATokenAndARowForTheRequestsBehind) {
  for (const bool rows : {false, true}) {
    SchedulerOptions options = Options();
    (rows ? options.max_num_logits_rows : options.max_num_tokens) = 4;
    Start(options);
    for (uint64_t id = 1; id <= 3; ++id) Add(MakeRequest(id, 1, 20));
    EXPECT_EQ(Schedule(), "1:1 2:1 3:1");
    step::StepResult result{.step_id = plan_.step_id, .results = {}};
    for (const step::ScheduledRequest& entry : plan_.scheduled) {
      step::RequestResult& answer = result.results.emplace_back();
      answer.index = entry.index;
      answer.sampled_token_ids = {31};
      answer.draft_token_ids = {40, 41, 42};
    }
    EXPECT_TRUE(scheduler_->Update(std::move(result), &events_).ok());
    EXPECT_EQ(Schedule(), "1:2 2:1 3:1");
  }
}

TEST_F(DraftsTest, DraftsTakeNoBlockThatOthersNeed) {
  SchedulerOptions options = Options();
  options.kv_cache.num_blocks = 3;  // 8 tokens
  Start(options);
  Add(MakeRequest(1, 2, 20));
  Schedule();
  Answer({31}, {40, 41, 42});
  EXPECT_EQ(Schedule(), "1:2");  // up to the end of its block
  EXPECT_FALSE(plan_.scheduled[0].has_new_blocks());
}

TEST_F(DraftsTest, AnAbortDropsDraftsInFlight) {
  Start(Options());
  Add(MakeRequest(1, 3, 20));
  Step();
  EXPECT_FALSE(Schedule().empty());
  EXPECT_FALSE(plan_.scheduled[0].draft_token_ids.empty());
  scheduler_->Abort(RequestId(1), &events_);
  Finish();
  EXPECT_TRUE(events_.empty());
  EXPECT_FALSE(scheduler_->HasWork());
}

TEST_F(DraftsTest, DraftsBeyondTheLimitAreIgnored) {
  Start(SmallOptions());  // none are allowed
  Add(MakeRequest(1, 5, 20));
  Schedule();
  Answer({31}, {40, 41, 42});
  EXPECT_EQ(Schedule(), "1:1");
}

TEST_F(DraftsTest, AcceptedTokensThatWereNotDraftedFailTheRequest) {
  Start(Options());
  Add(MakeRequest(1, 5, 20));
  Schedule();
  Answer({31}, {40, 41, 42});
  Schedule();
  Answer({41, 42}, {});
  EXPECT_EQ(events_[0].finish_reason, FinishReason::kError);
}

// A request and the next steps of it before their results are known.
class DecodeAheadTest : public SchedulerTest {
 protected:
  static SchedulerOptions Options() {
    SchedulerOptions options = SmallOptions();
    options.decode_ahead = true;
    return options;
  }
  void Execute() {
    StatusOr<step::StepResult> result = model_->Run(plan_);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    started_.push_back(std::move(*result));
  }
  void Collect() {
    events_.clear();
    EXPECT_TRUE(scheduler_->Update(std::move(started_.front()), &events_).ok());
    started_.erase(started_.begin());
    const Status status = scheduler_->CheckIntegrity();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  std::vector<step::StepResult> started_;
};

TEST_F(DecodeAheadTest, APlaceholderStandsForTheTokenInFlight) {
  Start(Options());
  const Request request = MakeRequest(1, 5, 4);
  Add(request);
  const std::vector<int32_t> expected = FakeModel::Continue(request.prompt_token_ids, 4, 97);
  EXPECT_EQ(Schedule(), "1:5");
  Execute();
  EXPECT_EQ(Schedule(), "1:1");
  EXPECT_EQ(plan_.scheduled[0].token_ids, std::vector<int32_t>{step::kPlaceholderTokenId});
  EXPECT_EQ(plan_.scheduled[0].num_computed_tokens, 5);
  Execute();
  Collect();
  EXPECT_EQ(events_[0].new_token_ids, std::vector<int32_t>{expected[0]});
  EXPECT_EQ(Schedule(), "1:1");
  EXPECT_EQ(plan_.scheduled[0].num_computed_tokens, 6);
  EXPECT_EQ(plan_.scheduled[0].token_ids, std::vector<int32_t>{step::kPlaceholderTokenId});
  Execute();
  Collect();
  EXPECT_EQ(events_[0].new_token_ids, std::vector<int32_t>{expected[1]});
}

TEST_F(DecodeAheadTest, WhoIsCertainToEndIsNotPlannedAgain) {
  Start(Options());
  Add(MakeRequest(1, 5, 2));
  Schedule();
  Execute();
  EXPECT_EQ(Schedule(), "1:1");
  Execute();
  EXPECT_EQ(Schedule(), "");  // two tokens are in flight
  Collect();
  Collect();
  EXPECT_EQ(events_[0].finish_reason, FinishReason::kLength);
}

TEST_F(DecodeAheadTest, AFullContextIsCertainToEndToo) {
  SchedulerOptions options = Options();
  options.max_model_len = 6;
  Start(options);
  Add(MakeRequest(1, 5, 20));
  Schedule();
  Execute();
  EXPECT_EQ(Schedule(), "");
  Collect();
  EXPECT_EQ(events_[0].finish_reason, FinishReason::kLength);
}

TEST_F(DecodeAheadTest, TheLateResultOfAStoppedRequestIsDropped) {
  Start(Options());
  Request request = MakeRequest(1, 5, 20);
  request.sampling.stop_token_ids =
      FakeModel::Continue(request.prompt_token_ids, 1, 97);  // it stops at once
  Add(request);
  Schedule();
  Execute();
  Schedule();
  Execute();
  Collect();
  EXPECT_EQ(events_[0].finish_reason, FinishReason::kStop);
  EXPECT_EQ(scheduler_->stats().kv_blocks_used, 0);
  Add(MakeRequest(2, 5, 20));  // gets the same slot and blocks
  EXPECT_EQ(Schedule(), "2:5");
  Execute();
  Collect();
  EXPECT_TRUE(events_.empty());
  Collect();
  EXPECT_EQ(events_[0].id, RequestId(2));
  EXPECT_EQ(events_[0].new_token_ids,
            FakeModel::Continue(MakeRequest(2, 5, 20).prompt_token_ids, 1, 97));
}

TEST_F(DecodeAheadTest, PromptLogprobsAreOfThePromptOnly) {
  Start(Options());
  Request request = MakeRequest(1, 5, 4);
  request.sampling.prompt_logprobs = 0;
  Add(request);
  Schedule();
  Execute();
  EXPECT_EQ(Schedule(), "1:1");
  EXPECT_FALSE(plan_.scheduled[0].prompt_logprobs);
  Execute();
  Collect();
  EXPECT_EQ(events_[0].prompt_logprobs->size(), 4u);
  Collect();
  EXPECT_EQ(events_[0].new_token_ids.size(), 1u);
}

}  // namespace
}  // namespace pagemill::scheduler
