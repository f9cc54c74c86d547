#include "cc/scheduler/scheduler.h"

#include <memory>
#include <string>
#include <vector>

#include "cc/scheduler/admission/request_check.h"
#include "cc/scheduler/testing/scheduler_fixture.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

TEST_F(SchedulerTest, RunningComeFirstThenWaitingWithinTheTokenBudget) {
  Start(SmallOptions());
  Add(MakeRequest(1, 10, 9));
  Add(MakeRequest(2, 11, 9));
  Add(MakeRequest(3, 3, 9));
  EXPECT_EQ(Step(), "1:10 2:6");
  EXPECT_EQ(Step(), "1:1 2:5 3:3");
  EXPECT_EQ(Step(), "1:1 2:1 3:1");
}

TEST_F(SchedulerTest, SlotsBoundTheRunning) {
  Start(SmallOptions());
  for (uint64_t id = 1; id <= 6; ++id) Add(MakeRequest(id, 1, id == 2 ? 1 : 3));
  EXPECT_EQ(Step(), "1:1 2:1 3:1 4:1");
  EXPECT_EQ(scheduler_->stats().num_waiting, 2);
  EXPECT_EQ(Step(), "1:1 3:1 4:1 5:1");
  EXPECT_EQ(plan_.released.size(), 1u);
  EXPECT_EQ(plan_.released[0], plan_.scheduled[3].index);
}

TEST_F(SchedulerTest, ALongPromptIsCapped) {
  SchedulerOptions options = SmallOptions();
  options.long_prefill_token_threshold = 5;
  Start(options);
  Add(MakeRequest(1, 12, 2));
  Add(MakeRequest(2, 9, 2));
  EXPECT_EQ(Step(), "1:5 2:5");
  EXPECT_EQ(Step(), "1:5 2:4");
  EXPECT_EQ(Step(), "1:2 2:1");
}

TEST_F(SchedulerTest, APromptThatCannotBeCutWaitsForRoom) {
  SchedulerOptions options = SmallOptions();
  options.chunked_prefill = false;
  Start(options);
  Add(MakeRequest(1, 10, 3));
  Add(MakeRequest(2, 7, 3));
  EXPECT_EQ(Step(), "1:10");
  EXPECT_EQ(Step(), "1:1 2:7");
}

TEST_F(SchedulerTest, LogitsRowsAreABudget) {
  SchedulerOptions options = SmallOptions();
  options.max_num_logits_rows = 3;
  Start(options);
  Request scored = MakeRequest(1, 7, 2);
  scored.sampling.prompt_logprobs = 0;
  Add(scored);
  for (uint64_t id = 2; id <= 4; ++id) Add(MakeRequest(id, 2, 9));
  // No row is left: the others stop before the token that would need one.
  EXPECT_EQ(Step(), "1:3 2:1 3:1 4:1");
  EXPECT_TRUE(events_.empty());
  EXPECT_EQ(Step(), "1:3");
  EXPECT_EQ(Step(), "1:1 2:1 3:1");
  ASSERT_EQ(events_.size(), 3u);
  ASSERT_TRUE(events_[0].prompt_logprobs.has_value());
  EXPECT_EQ(events_[0].prompt_logprobs->size(), 6u);
  EXPECT_EQ(Step(), "1:1 2:1 3:1");
  EXPECT_EQ(Step(), "2:1 3:1 4:1");
}

TEST_F(SchedulerTest, APlanIsADiff) {
  Start(SmallOptions());
  Add(MakeRequest(1, 6, 9));
  Step();
  EXPECT_NE(plan_.scheduled[0].start, nullptr);
  EXPECT_EQ(plan_.scheduled[0].new_block_ids[0].size(), 2u);
  for (int32_t position = 6; position < 10; ++position) {
    Step();
    const ScheduledRequest& entry = plan_.scheduled[0];
    EXPECT_EQ(entry.start, nullptr);
    EXPECT_EQ(entry.num_computed_tokens, position);
    EXPECT_EQ(entry.token_ids.size(), 1u);
    EXPECT_EQ(entry.has_new_blocks(), position == 8) << position;
    EXPECT_TRUE(entry.sample);
  }
}

TEST_F(SchedulerTest, TheYoungestGivesWayAndComesBackFirst) {
  SchedulerOptions options = SmallOptions();
  options.kv_cache.num_blocks = 5;  // 16 tokens
  options.kv_cache.enable_prefix_caching = false;
  Start(options);
  Add(MakeRequest(1, 4, 6));
  Add(MakeRequest(2, 7, 6));
  EXPECT_EQ(Step(), "1:4 2:7");
  Add(MakeRequest(3, 1, 1));
  EXPECT_EQ(Step(), "1:1 2:1");  // 3 would need a fifth block
  // 2 wants a block for its ninth token, there is none, and it is the youngest.
  EXPECT_EQ(Step(), "1:1");
  EXPECT_EQ(scheduler_->stats().num_preemptions, 1u);
  EXPECT_EQ(plan_.released.size(), 1u);
  // It does not fit (3 blocks of 2), and no request overtakes it.
  EXPECT_EQ(Step(), "1:1");
  EXPECT_EQ(Step(), "1:1");
  EXPECT_EQ(Step(), "1:1");
  EXPECT_EQ(events_[0].finish_reason, FinishReason::kLength);
  EXPECT_EQ(Step(), "2:9 3:1");
  EXPECT_EQ(plan_.scheduled[0].resumed_output_token_ids.size(), 2u);
  EXPECT_EQ(plan_.scheduled[0].num_computed_tokens, 0);
}

TEST_F(SchedulerTest, APrefixIsComputedOnce) {
  Start(SmallOptions());
  Add(MakeRequest(1, 14, 1));
  Step();
  Add(MakeRequest(11, 14, 1));  // the same prompt
  EXPECT_EQ(Step(), "11:2");
  EXPECT_EQ(plan_.scheduled[0].num_computed_tokens, 12);
  EXPECT_EQ(plan_.scheduled[0].new_block_ids[0].size(), 4u);
  EXPECT_EQ(events_[0].num_cached_tokens, 12);
  EXPECT_EQ(scheduler_->stats().prefix_cache_query_tokens, 28u);
  EXPECT_EQ(scheduler_->stats().prefix_cache_hit_tokens, 12u);
}

TEST_F(SchedulerTest, TokensThatAreNotFoundHaveAReason) {
  SchedulerOptions options = SmallOptions();
  options.kv_cache.num_blocks = 5;
  Start(options);
  Add(MakeRequest(1, 14, 1));
  Step();
  EXPECT_EQ(events_[0].num_evicted_tokens, 0);
  EXPECT_EQ(scheduler_->stats().prefix_cache_partial_tokens, 2u);
  Add(MakeRequest(2, 13, 1));  // takes all blocks
  Step();
  Add(MakeRequest(11, 14, 1));  // the prompt of the first
  EXPECT_EQ(Step(), "11:14");
  EXPECT_EQ(events_[0].num_cached_tokens, 0);
  EXPECT_EQ(events_[0].num_evicted_tokens, 12);
  const SchedulerStats stats = scheduler_->stats();
  EXPECT_EQ(stats.prefix_cache_query_tokens, 14u + 13 + 14);
  EXPECT_EQ(stats.prefix_cache_hit_tokens, 0u);
  EXPECT_EQ(stats.prefix_cache_evicted_tokens, 12u);
  EXPECT_EQ(stats.prefix_cache_partial_tokens, 2u + 1 + 2);
}

TEST_F(SchedulerTest, APlanTellsWhatAllRunningShare) {
  Start(SmallOptions());
  Add(MakeRequest(1, 14, 4));
  Step();
  EXPECT_TRUE(plan_.num_common_prefix_blocks.empty());  // no request to share with
  Add(MakeRequest(11, 14, 2));                          // the same prompt
  EXPECT_EQ(Step(), "1:1 11:2");
  EXPECT_EQ(plan_.num_common_prefix_blocks, std::vector<int32_t>{3});
  Add(MakeRequest(2, 6, 2));
  EXPECT_EQ(Step(), "1:1 11:1 2:6");
  EXPECT_EQ(plan_.num_common_prefix_blocks, std::vector<int32_t>{0});
}

TEST_F(SchedulerTest, WhoNeedsEveryTokenDoesNotReadThePrefixCache) {
  Start(SmallOptions());
  Add(MakeRequest(1, 6, 1));
  Step();
  Request scored = MakeRequest(11, 6, 1);
  scored.sampling.prompt_logprobs = 0;
  Add(scored);
  EXPECT_EQ(Step(), "11:6");
  Request skipping = MakeRequest(21, 6, 1);
  skipping.skip_reading_prefix_cache = true;
  Add(skipping);
  EXPECT_EQ(Step(), "21:6");
  EXPECT_EQ(scheduler_->stats().prefix_cache_query_tokens, 6u);
}

TEST_F(SchedulerTest, APromptMayBeScoredWithoutGenerating) {
  Start(SmallOptions());
  for (int32_t size : {1, 5}) {
    Request request = MakeRequest(1, size, 0);
    request.sampling.prompt_logprobs = 2;
    Add(request);
    Step();
    ASSERT_EQ(events_.size(), 1u);
    EXPECT_FALSE(plan_.scheduled[0].sample);
    EXPECT_EQ(events_[0].finish_reason, FinishReason::kLength);
    EXPECT_TRUE(events_[0].new_token_ids.empty());
    ASSERT_TRUE(events_[0].prompt_logprobs.has_value());
    EXPECT_EQ(events_[0].prompt_logprobs->size(), static_cast<size_t>(size - 1));
  }
}

TEST_F(SchedulerTest, AnOutputThatRepeatsItselfEndsItsRequest) {
  Start(SmallOptions());
  Request request = MakeRequest(1, 2, 20);
  request.sampling.repetition_max_pattern = 2;
  request.sampling.repetition_min_count = 3;
  request.sampling.min_tokens = 8;
  Add(request);
  const std::vector<int32_t> output = {3, 4, 5, 4, 5, 4, 5, 4};  // it repeats from the seventh on
  for (const int32_t token : output) {
    ASSERT_TRUE(events_.empty() || !events_[0].finish_reason);
    Schedule();
    StatusOr<step::StepResult> result = model_->Run(plan_);
    ASSERT_TRUE(result.ok());
    result->results[0].sampled_token_ids = std::vector<int32_t>{token};
    events_.clear();
    ASSERT_TRUE(scheduler_->Update(std::move(*result), &events_).ok());
  }
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].finish_reason, step::FinishReason::kRepetition);
  EXPECT_EQ(events_[0].stop_token_id, std::nullopt);
}

TEST_F(SchedulerTest, AnAbortedRequestsResultIsDropped) {
  Start(SmallOptions());
  Add(MakeRequest(1, 5, 5));
  Add(MakeRequest(2, 5, 5));
  Schedule();
  EXPECT_TRUE(scheduler_->Abort(RequestId(1), &events_));
  EXPECT_FALSE(scheduler_->Abort(RequestId(1), &events_));
  Add(MakeRequest(1, 3, 5));  // the id is free at once
  Finish();
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].id, RequestId(2));
  EXPECT_EQ(Step(), "2:1 1:3");
}

TEST_F(SchedulerTest, StepsInFlightHoldChunksButNoUnknownTokens) {
  Start(SmallOptions());
  Add(MakeRequest(1, 40, 5));
  EXPECT_EQ(Schedule(), "1:16");
  StatusOr<step::StepResult> first = model_->Run(plan_);
  EXPECT_EQ(Schedule(), "1:16");
  StatusOr<step::StepResult> second = model_->Run(plan_);
  EXPECT_EQ(Schedule(), "1:8");
  StatusOr<step::StepResult> third = model_->Run(plan_);
  EXPECT_EQ(Schedule(), "");  // its next token is not known yet
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  EXPECT_EQ(scheduler_->num_steps_in_flight(), 3u);
  events_.clear();
  EXPECT_TRUE(scheduler_->Update(std::move(*first), &events_).ok());
  EXPECT_TRUE(scheduler_->Update(std::move(*second), &events_).ok());
  EXPECT_TRUE(events_.empty());
  EXPECT_TRUE(scheduler_->Update(std::move(*third), &events_).ok());
  EXPECT_EQ(events_.size(), 1u);
  EXPECT_EQ(Schedule(), "1:1");
}

TEST_F(SchedulerTest, APoolSmallerThanTheContextEndsRequestsWithLength) {
  SchedulerOptions options = SmallOptions();
  options.kv_cache.num_blocks = 4;  // 12 tokens
  Start(options);
  EXPECT_EQ(scheduler_->request_check().max_request_tokens(), 12);
  Add(MakeRequest(1, 5, 50));
  size_t num_tokens = 0;
  while (scheduler_->HasWork()) {
    Step();
    num_tokens += events_[0].new_token_ids.size();
  }
  EXPECT_EQ(num_tokens, 7u);
  EXPECT_EQ(events_[0].finish_reason, FinishReason::kLength);
}

TEST_F(SchedulerTest, TheQueueIsBoundedAndIdsAreUnique) {
  Start(SmallOptions());
  for (uint64_t id = 1; id <= 8; ++id) Add(MakeRequest(id, 2, 2));
  EXPECT_EQ(scheduler_->Add(MakeRequest(9, 2, 2)).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(scheduler_->Abort(RequestId(8), &events_));
  EXPECT_EQ(scheduler_->Add(MakeRequest(3, 2, 2)).code(), StatusCode::kFailedPrecondition);
  Add(MakeRequest(9, 2, 2));
}

TEST_F(SchedulerTest, AnswersThatDoNotFitThePlanFailItsRequests) {
  const auto answer = [this](auto change) {
    Start(SmallOptions());
    Request request = MakeRequest(1, 5, 5);
    request.sampling.logprobs = 0;
    Add(request);
    Schedule();
    StatusOr<step::StepResult> result = model_->Run(plan_);
    ASSERT_TRUE(result.ok());
    change(*result);
    events_.clear();
    EXPECT_TRUE(scheduler_->Update(std::move(*result), &events_).ok());
    ASSERT_EQ(events_.size(), 1u);
    EXPECT_EQ(events_[0].finish_reason, FinishReason::kError);
    EXPECT_EQ(events_[0].error.code(), StatusCode::kInternal);
    EXPECT_FALSE(scheduler_->HasWork());
    EXPECT_EQ(scheduler_->stats().kv_blocks_used, 0);
    EXPECT_TRUE(scheduler_->CheckIntegrity().ok());
  };
  answer([](step::StepResult& r) { r.step_id = 99; });
  answer([](step::StepResult& r) { r.results.clear(); });
  answer([](step::StepResult& r) { r.results[0].index = step::RequestIndex(3); });
  answer([](step::StepResult& r) { r.results[0].sampled_token_ids.clear(); });
  answer([](step::StepResult& r) { r.results[0].sampled_token_ids[0] = 97; });
  answer([](step::StepResult& r) { r.results[0].sampled_token_ids[0] = -1; });
  answer([](step::StepResult& r) { r.results[0].sampled_token_ids.push_back(5); });
  answer([](step::StepResult& r) { r.results[0].draft_token_ids = {97}; });
  answer([](step::StepResult& r) { r.results[0].logprobs.clear(); });
  answer([](step::StepResult& r) { r.results[0].failure = Internal("no"); });
}

TEST(SchedulerOptions, RefusalsNameTheField) {
  const auto message = [](auto change) {
    SchedulerOptions options = SmallOptions();
    change(options);
    return Scheduler::Create(options).status().ToString();
  };
  const auto names = [](const std::string& text, const char* field) {
    return text.find("INVALID_ARGUMENT") == 0 && text.find(field) != std::string::npos;
  };
  EXPECT_EQ(message([](SchedulerOptions&) {}), "OK");
  EXPECT_TRUE(names(message([](SchedulerOptions& o) { o.max_num_tokens = 0; }), "max_num_tokens"));
  EXPECT_TRUE(names(message([](SchedulerOptions& o) { o.max_num_seqs = -1; }), "max_num_seqs"));
  EXPECT_TRUE(names(message([](SchedulerOptions& o) { o.max_num_logits_rows = 0; }),
                    "max_num_logits_rows"));
  EXPECT_TRUE(names(message([](SchedulerOptions& o) { o.max_model_len = 0; }), "max_model_len"));
  EXPECT_TRUE(
      names(message([](SchedulerOptions& o) { o.max_draft_tokens = -1; }), "max_draft_tokens"));
  EXPECT_TRUE(names(message([](SchedulerOptions& o) {
                      o.max_draft_tokens = 2;
                      o.kv_cache.groups = {{"full"}, {.kind = "state_space"}};
                    }),
                    "recurrent states"));
  EXPECT_TRUE(names(message([](SchedulerOptions& o) { o.policy = "lifo"; }), "fcfs"));
  EXPECT_TRUE(names(message([](SchedulerOptions& o) { o.kv_cache.num_blocks = 1; }), "num_blocks"));
}

// Two stages: a step takes half of the requests, and those of the other are in flight meanwhile.
TEST_F(SchedulerTest, RequestsAlternateBetweenTheStagesOfAPipeline) {
  SchedulerOptions options = SmallOptions();
  options.pipeline_stages = 2;
  options.kv_cache.max_steps_in_flight = 2;
  Start(options);
  for (uint64_t id = 1; id <= 4; ++id) Add(MakeRequest(id, 2, 9));
  EXPECT_EQ(Schedule(), "1:2 2:2");
  for (const std::string text : {"3:2 4:2", "1:1 2:1", "3:1 4:1", "1:1 2:1"}) {
    step::StepPlan in_flight = plan_;
    EXPECT_EQ(Schedule(), text);
    std::swap(plan_, in_flight);
    Finish();
    std::swap(plan_, in_flight);
  }
  EXPECT_EQ(scheduler_->num_decoding(), 2);
}

TEST_F(SchedulerTest, WithoutBlocksForWaitingRequestsTheRunningOnesAreDivided) {
  SchedulerOptions options = SmallOptions();
  options.pipeline_stages = 2;
  options.kv_cache.max_steps_in_flight = 2;
  options.kv_cache.num_blocks = 5;
  Start(options);
  for (uint64_t id = 1; id <= 4; ++id) Add(MakeRequest(id, 5, 3));  // two blocks each
  EXPECT_EQ(Step(), "1:5 2:5");
  EXPECT_EQ(Step(), "1:1") << "all of the two would be one step";
}

}  // namespace
}  // namespace pagemill::scheduler
