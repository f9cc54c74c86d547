#include "cc/runner/model_runner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/runner/media/media_embeddings.h"
#include "cc/runner/media/media_encoder.h"

namespace pagemill::runner {
namespace {

using step::BlockId;
using step::Request;
using step::RequestIndex;
using step::SamplingParams;
using step::ScheduledRequest;
using step::StepPlan;
using step::StepResult;

constexpr int32_t kVocab = 11;
constexpr int32_t kColumns = 13;  // padded

// The most likely token after token t at position p is (3 t + p) mod kVocab; a padding column is
// even more likely and must be ignored.
int32_t NextToken(int32_t token, int32_t position) { return (3 * token + position) % kVocab; }

class FakeExecutor final : public program::Executor {
 public:
  Status Enqueue(const ops::StepBatch& batch) override {
    ++num_steps;
    if (!next_status.ok()) return std::exchange(next_status, OkStatus());
    logits_.assign(static_cast<size_t>(batch.num_logits_rows * kColumns), 0.0f);
    for (int32_t l = 0; l < batch.num_logits_rows; ++l) {
      float* row = &logits_[static_cast<size_t>(l * kColumns)];
      const int32_t t = batch.logits_rows[l];
      row[NextToken(batch.token_ids[t], batch.positions[t])] = 5.0f;
      row[kVocab] = 100.0f;
      if (batch.token_ids[t] == poisoned_token) row[4] = std::numeric_limits<float>::quiet_NaN();
    }
    asked_columns = batch.argmax_columns;
    media_rows.assign(batch.media_rows, batch.media_rows + batch.num_media_rows);
    media.clear();
    for (const TensorView& input : batch.inputs) {
      media.assign(input.Data<float>(), input.Data<float>() + input.Elements());
    }
    pooled_.clear();
    if (pools_tokens) {
      for (int32_t t = 0; t < batch.num_tokens; ++t) {
        pooled_.insert(pooled_.end(), {static_cast<float>(batch.token_ids[t]), 0.5f});
      }
    }
    for (int32_t r = 0; r < batch.num_requests && !pools_tokens; ++r) {
      const int32_t first = batch.token_ids[batch.query_start[r]];
      pooled_.push_back(static_cast<float>(batch.seq_lens[r]));
      pooled_.push_back(first == poisoned_token ? std::numeric_limits<float>::infinity() : 0.5f);
    }
    outputs_.clear();
    if (has_logits) {
      outputs_.push_back({"logits", TensorView::Dense(logits_.data(), DType::kF32,
                                                      {batch.num_logits_rows, kColumns})});
    }
    if (has_pooled) {
      outputs_.push_back(
          {"pooled", TensorView::Dense(pooled_.data(), DType::kF32,
                                       {static_cast<int64_t>(pooled_.size()) / 2, 2})});
    }
    if (routes) {
      experts_.clear();
      for (int32_t t = 0; t < batch.num_tokens; ++t) {
        for (int32_t k = 0; k < 3; ++k) experts_.push_back(300 * k + batch.token_ids[t]);
      }
      // Two layers of columns of one matrix, with 2 choices and 1.
      TensorView all = TensorView::Dense(experts_.data(), DType::kI32, {batch.num_tokens, 3});
      TensorView first = all, second = all;
      first.shape[1] = 2;
      second.shape[1] = 1;
      second.data = experts_.data() + 2;
      outputs_.push_back({"experts.1", first});
      outputs_.push_back({"experts.4", second});
    }
    found_maxima_ = finds_maxima && batch.argmax_columns > 0;
    if (found_maxima_) {
      maxima_.assign(static_cast<size_t>(batch.num_logits_rows), {});
      for (size_t l = 0; l < maxima_.size(); ++l) {
        ops::Observe(&logits_[l * kColumns], batch.argmax_columns, 0, &maxima_[l]);
      }
      if (loses_a_maximum) maxima_.pop_back();
      std::erase_if(outputs_, [](const program::OutputView& o) { return o.name == "logits"; });
    }
    return OkStatus();
  }

  Status Collect(program::ExecutorOutput* output) override {
    output->outputs = outputs_;
    output->maxima = {};
    if (found_maxima_) output->maxima = maxima_;
    return OkStatus();
  }

  bool has_logits = true;
  bool has_pooled = false;
  bool pools_tokens = false;  // a row of "pooled" for each token
  bool finds_maxima = false;
  bool routes = false;  // returns experts of each token
  bool loses_a_maximum = false;
  int32_t asked_columns = 0;  // argmax_columns of the last step
  int32_t poisoned_token = -1;
  std::vector<int32_t> media_rows;  // of the last step, and its input
  std::vector<float> media;
  Status next_status;
  int num_steps = 0;

 private:
  std::vector<float> logits_, pooled_;
  std::vector<int32_t> experts_;
  std::vector<program::OutputView> outputs_;
  std::vector<ops::RowMaximum> maxima_;
  bool found_maxima_ = false;
};

engine::RunnerLimits SmallLimits() {
  engine::RunnerLimits limits;
  limits.max_num_tokens = 32;
  limits.max_num_seqs = 4;
  limits.max_num_logits_rows = 16;
  limits.max_model_len = 32;
  limits.vocab_size = kVocab;
  limits.num_blocks = 20;
  limits.block_size = 8;
  return limits;
}

std::shared_ptr<Request> MakeRequest(std::vector<int32_t> prompt) {
  auto request = std::make_shared<Request>();
  request->prompt_token_ids = std::move(prompt);
  request->sampling.temperature = 0;
  return request;
}

ScheduledRequest Start(int32_t slot, const std::shared_ptr<Request>& request) {
  ScheduledRequest entry;
  entry.index = RequestIndex(slot);
  entry.start = request;
  entry.token_ids = request->prompt_token_ids.ToVector();
  entry.new_block_ids = {{BlockId(1 + slot)}};
  entry.sample = true;
  return entry;
}

// What fails a step, which may be any of the three calls.
Status RunStep(ModelRunner& runner, const StepPlan& plan) {
  PAGEMILL_RETURN_IF_ERROR(runner.Execute(plan));
  PAGEMILL_RETURN_IF_ERROR(runner.Sample());
  return runner.Collect().status();
}

class ModelRunnerTest : public ::testing::Test {
 protected:
  ModelRunnerTest() : pool_({.num_threads = 2}) {
    runner_ = *ModelRunner::Create(&executor_, &pool_, SmallLimits());
  }

  StepResult MustRun(std::vector<ScheduledRequest> entries) {
    StepPlan plan;
    plan.step_id = ++step_id_;
    plan.scheduled = std::move(entries);
    Status status = runner_->Execute(plan);
    if (status.ok()) status = runner_->Sample();
    EXPECT_TRUE(status.ok()) << status.ToString();
    StatusOr<StepResult> result = runner_->Collect();
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(result->step_id, step_id_);
    EXPECT_EQ(result->results.size(), plan.scheduled.size());
    runner_->CheckIntegrity();
    return *std::move(result);
  }

  FakeExecutor executor_;
  device::ThreadPool pool_;
  std::unique_ptr<ModelRunner> runner_;
  uint64_t step_id_ = 0;
};

TEST_F(ModelRunnerTest, SamplesWhatThePlanAsksFor) {
  ScheduledRequest chunk = Start(1, MakeRequest({5, 6}));
  chunk.sample = false;
  const StepResult first = MustRun({Start(0, MakeRequest({1, 2, 3})), chunk});
  EXPECT_EQ(first.results[0].index, RequestIndex(0));
  EXPECT_EQ(first.results[0].sampled_token_ids, std::vector{NextToken(3, 2)});
  EXPECT_TRUE(first.results[0].logprobs.empty());
  EXPECT_EQ(first.results[1].index, RequestIndex(1));
  EXPECT_TRUE(first.results[1].sampled_token_ids.empty());
  EXPECT_TRUE(first.results[1].failure.ok());

  ScheduledRequest next;
  next.index = RequestIndex(0);
  next.num_computed_tokens = 3;
  next.token_ids = first.results[0].sampled_token_ids.ToVector();
  next.sample = true;
  EXPECT_EQ(MustRun({next}).results[0].sampled_token_ids,
            std::vector{NextToken(next.token_ids[0], 3)});
}

TEST_F(ModelRunnerTest, ProfilesStepsByKindWhileAsked) {
  using program::StepKind;
  ScheduledRequest next;
  next.index = RequestIndex(0);
  next.num_computed_tokens = 2;
  next.token_ids = {5};
  next.sample = true;
  (void)MustRun({Start(0, MakeRequest({1, 2}))});
  EXPECT_EQ(runner_->Profile(StepKind::kPrompt).steps, 0);
  runner_->SetProfiling(true);
  (void)MustRun({next});
  next.num_computed_tokens = 3;
  (void)MustRun({next});
  (void)MustRun({Start(1, MakeRequest({1, 2, 3}))});
  runner_->SetProfiling(false);
  next.num_computed_tokens = 4;
  (void)MustRun({next});
  const StepTimes decode = runner_->Profile(StepKind::kDecode);
  EXPECT_EQ(decode.steps, 2);
  EXPECT_GT(decode.collect_s, 0);
  EXPECT_GT(decode.model_s, decode.collect_s);
  EXPECT_GT(decode.sampling_s, 0);
  EXPECT_GT(decode.between_s, 0);
  const StepTimes prompt = runner_->Profile(StepKind::kPrompt);
  EXPECT_EQ(prompt.steps, 1);
  EXPECT_EQ(prompt.between_s, 0);  // no request of it ran before, so the wait may be for work
}

TEST_F(ModelRunnerTest, ScoresPromptTokensAndSampledOnes) {
  auto request = MakeRequest({1, 2, 7});
  request->sampling.logprobs = 2;
  request->sampling.prompt_logprobs = 0;
  ScheduledRequest entry = Start(0, request);
  entry.prompt_logprobs = true;
  const step::RequestResult result = MustRun({entry}).results[0];
  ASSERT_EQ(result.prompt_logprobs.size(), 2u);
  // One logit of 5 among ten of 0: log(e^5 + 10) below the winner.
  const double log_sum = std::log(std::exp(5.0) + kVocab - 1);
  EXPECT_EQ(result.prompt_logprobs[0].token_id, 2);
  EXPECT_NEAR(result.prompt_logprobs[0].logprob, (NextToken(1, 0) == 2 ? 5 : 0) - log_sum, 1e-5);
  EXPECT_EQ(result.prompt_logprobs[1].token_id, 7);
  EXPECT_EQ(NextToken(2, 1), 7);
  EXPECT_NEAR(result.prompt_logprobs[1].logprob, 5 - log_sum, 1e-5);
  EXPECT_EQ(result.prompt_logprobs[1].rank, 1);
  ASSERT_EQ(result.logprobs.size(), 1u);
  EXPECT_EQ(result.logprobs[0].token_id, result.sampled_token_ids[0]);
  EXPECT_EQ(result.logprobs[0].top.size(), 2u);
}

TEST_F(ModelRunnerTest, RoutedExpertsGoToTheRequestsThatWantThem) {
  engine::RunnerLimits limits = SmallLimits();
  limits.routed_experts_per_token = 3;
  limits.max_forced_tokens = 2;
  runner_ = *ModelRunner::Create(&executor_, &pool_, limits);
  executor_.routes = true;
  const auto other = MakeRequest({1, 2}), wants = MakeRequest({3, 4});
  wants->return_routed_experts = true;
  const StepResult first = MustRun({Start(0, other), Start(1, wants)});
  EXPECT_TRUE(first.results[0].routed_experts.empty());
  EXPECT_EQ(first.results[1].routed_experts,
            (std::vector<uint16_t>{3, 303, 603, 4, 304, 604}));
  // The second of two drafts is wrong: its experts are no more part of the text than it is.
  const int32_t token = first.results[1].sampled_token_ids.back();
  const int32_t draft = NextToken(token, 2);
  ScheduledRequest entry;
  entry.index = RequestIndex(1);
  entry.num_computed_tokens = 2;
  entry.token_ids = {token};
  entry.draft_token_ids = {draft, (NextToken(draft, 3) + 1) % kVocab};
  entry.sample = true;
  const StepResult second = MustRun({entry});
  ASSERT_EQ(second.results[0].sampled_token_ids.size(), 2u);
  const auto t = static_cast<uint16_t>(token), d = static_cast<uint16_t>(draft);
  const auto id = [](int32_t value) { return static_cast<uint16_t>(value); };
  EXPECT_EQ(second.results[0].routed_experts,
            (std::vector<uint16_t>{t, id(t + 300), id(t + 600), d, id(d + 300), id(d + 600)}));
}

TEST_F(ModelRunnerTest, AProgramWithOtherExpertsThanTheLimitsSayFailsTheStep) {
  engine::RunnerLimits limits = SmallLimits();
  limits.routed_experts_per_token = 4;
  runner_ = *ModelRunner::Create(&executor_, &pool_, limits);
  executor_.routes = true;
  const auto wants = MakeRequest({3, 4});
  wants->return_routed_experts = true;
  StepPlan plan;
  plan.scheduled = {Start(0, wants)};
  EXPECT_EQ(RunStep(*runner_, plan).message(),
            "the program gives 3 experts of a token instead of 4");
}

TEST_F(ModelRunnerTest, ResumedOutputsCountForPenalties) {
  auto request = MakeRequest({1, 2, 3});
  request->sampling.presence_penalty = 2;
  request->sampling.logit_bias = {{NextToken(3, 2), -4.0f}};  // 5 - 4 = 1, above 0, below it at -2
  EXPECT_EQ(MustRun({Start(0, request)}).results[0].sampled_token_ids[0], NextToken(3, 2));
  ScheduledRequest resumed = Start(0, request);
  resumed.resumed_output_token_ids = {NextToken(3, 2)};
  EXPECT_NE(MustRun({resumed}).results[0].sampled_token_ids[0], NextToken(3, 2));
}

TEST_F(ModelRunnerTest, NanLogitsFailOneRequest) {
  executor_.poisoned_token = 9;
  const StepResult result =
      MustRun({Start(0, MakeRequest({1})), Start(1, MakeRequest({9})), Start(2, MakeRequest({2}))});
  EXPECT_TRUE(result.results[0].failure.ok());
  EXPECT_EQ(result.results[1].failure.code(), StatusCode::kInternal);
  EXPECT_TRUE(result.results[1].sampled_token_ids.empty());
  EXPECT_TRUE(result.results[2].failure.ok());
  EXPECT_EQ(result.results[2].sampled_token_ids.size(), 1u);
}

TEST_F(ModelRunnerTest, StepsOfGreedyRequestsAskForMaximaOnly) {
  const auto run = [&] {
    return MustRun({Start(0, MakeRequest({1, 2, 3})), Start(1, MakeRequest({7}))});
  };
  const StepResult by_logits = run();
  EXPECT_EQ(executor_.asked_columns, kVocab);
  executor_.finds_maxima = true;
  const StepResult by_maxima = run();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(by_maxima.results[i].sampled_token_ids, by_logits.results[i].sampled_token_ids);
  }
  EXPECT_EQ(by_maxima.results[0].sampled_token_ids, std::vector{NextToken(3, 2)});
}

TEST_F(ModelRunnerTest, OneRowThatNeedsLogitsHasThemComputedForAll) {
  executor_.finds_maxima = true;
  const auto asked = [&](const std::function<void(SamplingParams&)>& change) {
    auto request = MakeRequest({1, 2, 7});
    change(request->sampling);
    ScheduledRequest entry = Start(1, request);
    entry.prompt_logprobs = request->sampling.prompt_logprobs != SamplingParams::kNoLogprobs;
    const StepResult result = MustRun({Start(0, MakeRequest({3})), entry});
    EXPECT_EQ(result.results[0].sampled_token_ids, std::vector{NextToken(3, 0)});
    return executor_.asked_columns;
  };
  EXPECT_EQ(asked([](SamplingParams&) {}), kVocab);
  EXPECT_EQ(asked([](SamplingParams& p) { p.temperature = 0.7f; }), 0);
  EXPECT_EQ(asked([](SamplingParams& p) { p.logprobs = 1; }), 0);
  EXPECT_EQ(asked([](SamplingParams& p) { p.prompt_logprobs = 1; }), 0);
  EXPECT_EQ(asked([](SamplingParams& p) { p.logit_bias = {{4, 1.0f}}; }), 0);
}

TEST_F(ModelRunnerTest, ARequestWithoutARowDoesNotMatter) {
  executor_.finds_maxima = true;
  auto request = MakeRequest({5, 6});
  request->sampling.temperature = 1;
  ScheduledRequest chunk = Start(1, request);
  chunk.sample = false;
  (void)MustRun({Start(0, MakeRequest({3})), chunk});
  EXPECT_EQ(executor_.asked_columns, kVocab);
}

TEST_F(ModelRunnerTest, ARowWithoutAMaximumFailsOneRequest) {
  executor_.finds_maxima = true;
  executor_.poisoned_token = 9;
  const StepResult result = MustRun({Start(0, MakeRequest({1})), Start(1, MakeRequest({9}))});
  EXPECT_TRUE(result.results[0].failure.ok());
  EXPECT_EQ(result.results[0].sampled_token_ids, std::vector{NextToken(1, 0)});
  EXPECT_EQ(result.results[1].failure.code(), StatusCode::kInternal);
  EXPECT_TRUE(result.results[1].sampled_token_ids.empty());
}

TEST_F(ModelRunnerTest, RefusesMaximaOfTooFewRows) {
  executor_.finds_maxima = executor_.loses_a_maximum = true;
  StepPlan plan;
  plan.scheduled = {Start(0, MakeRequest({1})), Start(1, MakeRequest({2}))};
  const Status status = RunStep(*runner_, plan);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(status.message(), "the executor gave 1 maxima of logits for 2 rows");
}

TEST_F(ModelRunnerTest, PoolsOnceThePromptIsComputed) {
  executor_.has_pooled = true;
  executor_.has_logits = false;
  executor_.poisoned_token = 9;
  auto request = MakeRequest({4, 5, 6});
  request->pooling.emplace();
  auto bad = MakeRequest({9});
  bad->pooling.emplace();
  const StepResult result = MustRun({Start(3, request), Start(1, bad)});
  EXPECT_EQ(result.results[0].pooled, (std::vector{3.0f, 0.5f}));
  EXPECT_TRUE(result.results[0].sampled_token_ids.empty());
  EXPECT_EQ(result.results[1].failure.code(), StatusCode::kInternal);
  ScheduledRequest part = Start(2, request);
  part.token_ids.pop_back();
  EXPECT_TRUE(MustRun({part}).results[0].pooled.empty());
  executor_.has_pooled = false;
  EXPECT_EQ(MustRun({Start(3, request)}).results[0].failure.code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(ModelRunnerTest, GivesTheRowsOfAllTokens) {
  executor_.has_pooled = executor_.pools_tokens = true;
  executor_.has_logits = false;
  auto three = MakeRequest({4, 5, 6}), one = MakeRequest({7});
  three->pooling.emplace();
  one->pooling.emplace();
  const StepResult result = MustRun({Start(3, three), Start(1, one)});
  EXPECT_EQ(result.results[0].pooled, (std::vector{4.0f, 0.5f, 5.0f, 0.5f, 6.0f, 0.5f}));
  EXPECT_EQ(result.results[1].pooled, (std::vector{7.0f, 0.5f}));
}

TEST_F(ModelRunnerTest, GivesTheRowsOfEachChunkBesideTokensAndDrafts) {
  engine::RunnerLimits limits = SmallLimits();
  limits.token_rows = true;
  limits.max_forced_tokens = 2;
  runner_ = *ModelRunner::Create(&executor_, &pool_, limits);
  executor_.has_pooled = executor_.pools_tokens = true;
  const auto pools = MakeRequest({4, 5, 6});
  pools->pooling.emplace();
  ScheduledRequest text = Start(0, MakeRequest({1, 2})), part = Start(1, pools);
  text.draft_token_ids = {3, 3};
  part.token_ids.pop_back();
  const StepResult result = MustRun({text, part});
  EXPECT_TRUE(result.results[0].pooled.empty());
  EXPECT_EQ(result.results[1].pooled, (std::vector{4.0f, 0.5f, 5.0f, 0.5f}));
}

TEST_F(ModelRunnerTest, AFailedStepLeavesTheRunnerUsable) {
  executor_.next_status = Internal("the device caught fire");
  StepPlan plan;
  plan.scheduled = {Start(0, MakeRequest({1}))};
  EXPECT_EQ(runner_->Execute(plan).message(), "the device caught fire");
  EXPECT_EQ(runner_->Sample().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(runner_->Collect().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(MustRun({Start(0, MakeRequest({2}))}).results[0].sampled_token_ids,
            std::vector{NextToken(2, 0)});
  executor_.has_logits = false;
  EXPECT_EQ(RunStep(*runner_, plan).code(), StatusCode::kFailedPrecondition);
}

TEST_F(ModelRunnerTest, VerifiesDrafts) {
  engine::RunnerLimits limits = SmallLimits();
  limits.max_draft_tokens = 3;
  runner_ = *ModelRunner::Create(&executor_, &pool_, limits);
  auto request = MakeRequest({1, 2});
  request->sampling.logprobs = 0;
  const int32_t first = MustRun({Start(0, request)}).results[0].sampled_token_ids[0];
  const int32_t second = NextToken(first, 2), third = NextToken(second, 3);
  ScheduledRequest next;
  next.index = RequestIndex(0);
  next.num_computed_tokens = 2;
  next.token_ids = {first};
  next.draft_token_ids = {second, third, (NextToken(third, 4) + 1) % kVocab};
  next.sample = true;
  const step::RequestResult result = MustRun({next}).results[0];
  EXPECT_EQ(result.sampled_token_ids, (std::vector{second, third, NextToken(third, 4)}));
  EXPECT_EQ(result.logprobs.size(), 3u);
  next.draft_token_ids = {(second + 1) % kVocab, third};
  EXPECT_EQ(MustRun({next}).results[0].sampled_token_ids, std::vector{second});
}

TEST_F(ModelRunnerTest, RefusesMoreDraftsThanItsLimit) {
  StepPlan plan;
  plan.scheduled = {Start(0, MakeRequest({1}))};
  plan.scheduled[0].draft_token_ids = {2};
  EXPECT_EQ(runner_->Execute(plan).code(), StatusCode::kInternal);
  EXPECT_EQ(executor_.num_steps, 0);
}

TEST_F(ModelRunnerTest, AStepThatOnlyReleasesRunsNothing) {
  MustRun({Start(0, MakeRequest({1}))});
  StepPlan plan;
  plan.released = {RequestIndex(0)};
  ASSERT_TRUE(runner_->Execute(plan).ok());
  ASSERT_TRUE(runner_->Sample().ok());
  EXPECT_TRUE(runner_->Collect()->results.empty());
  EXPECT_EQ(executor_.num_steps, 1);
  ScheduledRequest gone;
  gone.index = RequestIndex(0);
  gone.num_computed_tokens = 1;
  gone.token_ids = {3};
  plan = {};
  plan.scheduled = {gone};
  EXPECT_EQ(runner_->Execute(plan).code(), StatusCode::kInternal);
}

TEST_F(ModelRunnerTest, RefusesSenselessLimits) {
  engine::RunnerLimits limits = SmallLimits();
  limits.vocab_size = 0;
  const auto runner = ModelRunner::Create(&executor_, &pool_, limits);
  ASSERT_FALSE(runner.ok());
  EXPECT_EQ(runner.status().message(), "vocab_size must be at least 1, got 0");
  limits.vocab_size = kColumns + 1;
  const auto wide = *ModelRunner::Create(&executor_, &pool_, limits);
  StepPlan plan;
  plan.scheduled = {Start(0, MakeRequest({1}))};
  EXPECT_NE(RunStep(*wide, plan).message().find("13 columns"), std::string::npos);
}

TEST(ModelRunnerLimitsTest, AModelWithoutKvGroupsNeedsNoPages) {
  FakeExecutor executor;
  executor.has_pooled = true;
  device::ThreadPool pool({.num_threads = 1});
  engine::RunnerLimits limits = SmallLimits();
  limits.num_blocks = 0;
  EXPECT_FALSE(ModelRunner::Create(&executor, &pool, limits).ok());
  limits.kv_groups.clear();
  const auto runner = *ModelRunner::Create(&executor, &pool, limits);
  const auto request = MakeRequest({1, 2, 3});
  request->pooling.emplace();
  StepPlan plan;
  plan.scheduled = {Start(0, request)};
  plan.scheduled[0].new_block_ids.clear();
  plan.scheduled[0].sample = false;
  ASSERT_TRUE(runner->Execute(plan).ok());
  ASSERT_TRUE(runner->Sample().ok());
  EXPECT_EQ(runner->Collect()->results[0].pooled, (std::vector<float>{3, 0.5f}));
}

// Makes embeddings of one number, 1, for items of one row.
class FakeEncoder final : public program::Executor {
 public:
  Status Enqueue(const ops::StepBatch& batch) override {
    embeddings_.assign(static_cast<size_t>(batch.num_media_rows), 1.0f);
    return OkStatus();
  }
  Status Collect(program::ExecutorOutput* output) override {
    output_ = {"embeddings", TensorView::Dense(embeddings_.data(), DType::kF32,
                                               {static_cast<int64_t>(embeddings_.size()), 1})};
    output->outputs = {&output_, 1};
    return OkStatus();
  }

 private:
  std::vector<float> embeddings_;
  program::OutputView output_;
};

std::unique_ptr<MediaEmbeddings> MakeMedia(program::Executor* executor,
                                           const MediaEncoderOptions& options) {
  std::vector<std::unique_ptr<MediaEncoder>> encoders;
  encoders.push_back(*MediaEncoder::Create(executor, options));
  return *MediaEmbeddings::Create(std::move(encoders), {});
}

TEST(ModelRunnerMediaTest, GivesTheModelTheEmbeddingsOfThePlansMedia) {
  FakeExecutor executor;
  FakeEncoder encoder;
  device::ThreadPool pool({.num_threads = 1});
  engine::RunnerLimits limits = SmallLimits();
  const MediaEncoderOptions options = {.format = {.rows = 1, .channels = 1, .tokens = 1},
                                       .width = 1};
  const auto make = [&] {
    return ModelRunner::Create(&executor, &pool, limits, {.media = MakeMedia(&encoder, options)});
  };
  EXPECT_EQ(make().status().message(), "max_encoder_tokens is 0 with an encoder");
  limits.max_encoder_tokens = 2;
  EXPECT_EQ(ModelRunner::Create(&executor, &pool, limits).status().message(),
            "max_encoder_tokens is 2 without an encoder");
  const auto runner = *make();
  EXPECT_EQ(runner->limits().media_formats.at(0).rows, 1) << "what admission checks items by";
  const auto request = MakeRequest({1, 2, 3});
  request->media = {
      {"a", 1, 1, std::make_shared<step::MediaFeatures>(step::MediaFeatures{1, 1, {5.0f}})}};
  StepPlan plan;
  plan.scheduled = {Start(0, request)};
  plan.scheduled[0].media_to_encode = {0};
  ASSERT_TRUE(RunStep(*runner, plan).ok());
  EXPECT_EQ(executor.media_rows, (std::vector<int32_t>{1}));
  EXPECT_EQ(executor.media, (std::vector<float>{1.0f}));
  EXPECT_EQ(runner->num_encoded_media(), 1);
}

TEST(ModelRunnerLimitsTest, RefusesGroupsThatItHasNoArraysFor) {
  FakeExecutor executor;
  device::ThreadPool pool({.num_threads = 1});
  const auto error = [&](const step::KvGroupOptions& group) {
    engine::RunnerLimits limits;
    limits.vocab_size = kVocab;
    limits.num_blocks = 9;
    limits.kv_groups = {group};
    return ModelRunner::Create(&executor, &pool, limits).status().message();
  };
  EXPECT_EQ(error({.kind = "sliding_window", .window_tokens = 5}), "");
  EXPECT_EQ(error({.kind = "state_space"}), "");
  EXPECT_NE(error({.kind = "state_space", .checkpoints = step::StateCheckpoints::kNone})
                .find("need recent_states"),
            std::string::npos);
  EXPECT_NE(error({.pages_per_block = 2}).find("has 2 pages"), std::string::npos);
  EXPECT_NE(error({.kind = "cross"}).find("no arrays for \"cross\" layers"), std::string::npos);
}

}  // namespace
}  // namespace pagemill::runner
