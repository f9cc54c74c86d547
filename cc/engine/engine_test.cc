#include "cc/engine/engine.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "cc/engine/testing/fake_runner.h"
#include "gtest/gtest.h"

namespace pagemill::engine {
namespace {

using step::FakeModel;
using step::FinishReason;
using step::Request;
using step::RequestId;

constexpr double kLong = 60;  // seconds: longer than any step takes on a loaded machine

Request MakeRequest(uint64_t id, std::vector<int32_t> prompt, int32_t max_tokens) {
  Request request;
  request.id = RequestId(id);
  request.prompt_token_ids = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  return request;
}

std::vector<int32_t> Tokens(const Request& request) {
  return FakeModel::Continue(request.prompt_token_ids,
                             static_cast<size_t>(request.sampling.max_tokens),
                             FakeRunner::DefaultLimits().vocab_size);
}

class EngineTest : public testing::Test {
 protected:
  void StartEngine() {
    options_.check_integrity = true;
    auto engine = Engine::Create(options_, &runner_, &clock_, log_);
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = std::move(*engine);
  }

  // Reads until each of `ids` is finished; one merged output per request.
  std::map<RequestId, RequestOutput> Finish(std::vector<uint64_t> ids) {
    std::map<RequestId, RequestOutput> all;
    size_t left = ids.size();
    while (left > 0) {
      std::vector<RequestOutput> outputs = engine_->Wait(kLong);
      if (outputs.empty()) break;
      for (RequestOutput& output : outputs) {
        left -= output.finished();
        RequestOutput& sum = all[output.request_id];
        std::vector<int32_t> tokens = std::move(sum.new_token_ids);
        tokens.insert(tokens.end(), output.new_token_ids.begin(), output.new_token_ids.end());
        sum = std::move(output);
        sum.new_token_ids = std::move(tokens);
      }
    }
    EXPECT_EQ(left, 0u);
    return all;
  }

  void ExpectAnswers(const Request& request) {
    ASSERT_TRUE(engine_->Submit(request).ok());
    EXPECT_EQ(Finish({request.id.value()})[request.id].new_token_ids, Tokens(request));
  }

  bool Readable() const {
    pollfd descriptor{engine_->output_fd(), POLLIN, 0};
    return poll(&descriptor, 1, 0) == 1;
  }

  void TearDown() override {
    if (engine_) engine_->Shutdown();
    EXPECT_EQ(runner_.violation(), "");
  }

  EngineOptions options_;
  FakeRunner runner_{FakeRunner::DefaultLimits()};
  FakeClock clock_;
  LogSink log_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, ConcurrentRequestsGetTheirTokens) {
  for (int32_t in_flight : {1, 2}) {
    options_.max_in_flight_steps = in_flight;
    StartEngine();
    std::vector<Request> requests;
    std::vector<uint64_t> ids;
    for (int i = 0; i < 40; ++i) {
      requests.push_back(MakeRequest(100 + i, {1, 2, 3, 4, 5, 6, i % 7, 8, i % 3}, 5 + i % 30));
      ids.push_back(100 + i);
      ASSERT_TRUE(engine_->Submit(requests.back()).ok());
    }
    const auto outputs = Finish(ids);
    for (const Request& request : requests) {
      const RequestOutput& output = outputs.at(request.id);
      EXPECT_EQ(output.new_token_ids, Tokens(request));
      EXPECT_EQ(output.finish_reason, FinishReason::kLength);
    }
    const EngineStats stats = engine_->stats();
    EXPECT_EQ(stats.num_submitted, 40u);
    EXPECT_EQ(stats.finished_length, 40u);
    EXPECT_EQ(stats.num_running + stats.num_waiting + stats.kv_blocks_used, 0);
    EXPECT_EQ(stats.kv_blocks_total, 64);
    EXPECT_EQ(stats.prompt_tokens, 40u * 9);
    EXPECT_GT(stats.prefix_cache_hit_tokens, 0u);
    EXPECT_GT(stats.num_steps, 0u);
    engine_.reset();
    runner_.Restart();
  }
}

TEST_F(EngineTest, RefusesWhatCannotRunWithASentence) {
  StartEngine();
  Request request = MakeRequest(1, {1, 2, 3}, 4);
  request.sampling.top_p = 7;
  EXPECT_EQ(engine_->Submit(request).code(), StatusCode::kInvalidArgument);
  const Status too_long = engine_->Submit(MakeRequest(1, std::vector<int32_t>(128, 1), 16));
  EXPECT_EQ(too_long.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(too_long.message().find("144 (128 in the prompt, 16 for the completion)"),
            std::string::npos)
      << too_long.message();
  EXPECT_EQ(engine_->stats().num_refused, 2u);
  ExpectAnswers(MakeRequest(1, {1, 2, 3}, 4));
}

TEST_F(EngineTest, AnIdIsInUseUntilItsLastOutputIsRead) {
  StartEngine();
  const Request request = MakeRequest(1, {1, 2, 3}, 4);
  ASSERT_TRUE(engine_->Submit(request).ok());
  ASSERT_TRUE(engine_->WaitIdle(kLong));
  EXPECT_EQ(engine_->Submit(request).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine_->Poll().size(), 1u);
  ExpectAnswers(request);
}

TEST(EngineStepsTest, ARequestWithDraftsIsPlannedAheadOfItsResults) {
  RunnerLimits limits = FakeRunner::DefaultLimits();
  limits.max_draft_tokens = 3;
  FakeRunner runner(limits);
  SteadyClock clock;
  EngineOptions options;
  options.max_in_flight_steps = 3;
  options.check_integrity = true;
  auto engine = *Engine::Create(options, &runner, &clock, {});
  runner.Hold();
  const Request request = MakeRequest(1, {1, 2, 3}, 40);
  ASSERT_TRUE(engine->Submit(request).ok());
  while (runner.num_steps() < 3) std::this_thread::yield();
  runner.Release();
  std::vector<int32_t> tokens;
  while (tokens.size() < 40) {
    for (const RequestOutput& output : engine->Wait(kLong)) {
      ASSERT_TRUE(output.error.ok()) << output.error.ToString();
      tokens.insert(tokens.end(), output.new_token_ids.begin(), output.new_token_ids.end());
      if (!output.finished()) continue;
      const EngineStats stats = engine->stats();
      EXPECT_EQ(output.num_draft_steps, static_cast<int32_t>(stats.num_drafts));
      EXPECT_EQ(output.num_draft_tokens, static_cast<int32_t>(stats.draft_tokens));
      EXPECT_EQ(output.num_accepted_draft_tokens,
                static_cast<int32_t>(stats.accepted_draft_tokens));
    }
  }
  EXPECT_EQ(tokens, Tokens(request));
  EXPECT_GT(engine->stats().accepted_draft_tokens, 5u);
  const std::vector<uint64_t> by_position = engine->stats().accepted_drafts_by_position;
  EXPECT_EQ(std::accumulate(by_position.begin(), by_position.end(), uint64_t{0}),
            engine->stats().accepted_draft_tokens);
  EXPECT_TRUE(std::is_sorted(by_position.rbegin(), by_position.rend()));
  EXPECT_GT(engine->stats().draft_tokens, engine->stats().accepted_draft_tokens);
  EXPECT_EQ(runner.violation(), "");
}

TEST_F(EngineTest, TheQueueIsBounded) {
  options_.max_num_seqs = 2;
  options_.max_waiting_requests = 3;
  runner_.Hold();
  StartEngine();
  for (uint64_t id = 1; id <= 5; ++id) {
    ASSERT_TRUE(engine_->Submit(MakeRequest(id, {1, 2}, 2)).ok()) << id;
  }
  const Status full = engine_->Submit(MakeRequest(6, {1, 2}, 2));
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("--max-num-queued-reqs"), std::string::npos);
  runner_.Release();
  ASSERT_TRUE(engine_->WaitIdle(kLong));
  // No client reads: as many finished requests again are kept, then no more come in.
  const Status unread = engine_->Submit(MakeRequest(6, {1, 2}, 2));
  EXPECT_EQ(unread.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(unread.message().find("not read"), std::string::npos);
  EXPECT_EQ(engine_->Poll().size(), 5u);
  ExpectAnswers(MakeRequest(9, {1, 2}, 2));
}

TEST_F(EngineTest, ASlowConsumerGetsOneMergedOutput) {
  StartEngine();
  Request request = MakeRequest(1, {1, 2, 3}, 20);
  request.sampling.logprobs = 1;
  request.sampling.prompt_logprobs = 0;
  EXPECT_FALSE(Readable());
  ASSERT_TRUE(engine_->Submit(request).ok());
  ASSERT_TRUE(engine_->WaitIdle(kLong));
  EXPECT_TRUE(Readable());
  EXPECT_EQ(engine_->stats().num_unread_outputs, 1);
  const std::vector<RequestOutput> outputs = engine_->Poll();
  EXPECT_FALSE(Readable());
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].new_token_ids, Tokens(request));
  ASSERT_TRUE(outputs[0].logprobs && outputs[0].prompt_logprobs);
  EXPECT_EQ(outputs[0].logprobs->size(), 20u);
  EXPECT_EQ(outputs[0].prompt_logprobs->size(), 2u);
  EXPECT_TRUE(engine_->Poll().empty());
}

TEST_F(EngineTest, AbortEndsARequestWhereverItIs) {
  options_.max_num_seqs = 1;
  runner_.Hold();
  StartEngine();
  ASSERT_TRUE(engine_->Submit(MakeRequest(1, {1, 2, 3}, 100)).ok());
  ASSERT_TRUE(engine_->Submit(MakeRequest(2, {1, 2, 3}, 100)).ok());
  engine_->Abort(RequestId(2));
  engine_->Abort(RequestId(1));
  engine_->Abort(RequestId(77));
  runner_.Release();
  const auto outputs = Finish({1, 2});
  EXPECT_EQ(outputs.at(RequestId(1)).finish_reason, FinishReason::kAbort);
  EXPECT_EQ(outputs.at(RequestId(2)).finish_reason, FinishReason::kAbort);
  EXPECT_EQ(engine_->stats().finished_abort, 2u);
  EXPECT_EQ(engine_->stats().kv_blocks_used, 0);
  ExpectAnswers(MakeRequest(3, {4, 5}, 3));
}

TEST_F(EngineTest, ARunnerFailureEndsItsStepOnly) {
  std::atomic<int> num_lines = 0;
  log_ = [&num_lines](LogSeverity, std::string_view) { ++num_lines; };
  StartEngine();
  const Status why = Internal("the device is on fire");
  const Request request = MakeRequest(1, {1, 2, 3, 4, 5}, 6);

  runner_.FailNextExecute(why);
  ASSERT_TRUE(engine_->Submit(request).ok());
  RequestOutput output = Finish({1}).at(RequestId(1));
  EXPECT_EQ(output.finish_reason, FinishReason::kError);
  EXPECT_EQ(output.error, why);
  ExpectAnswers(request);

  runner_.FailNextSample(why);
  ASSERT_TRUE(engine_->Submit(request).ok());
  EXPECT_EQ(Finish({1}).at(RequestId(1)).error, why);
  ExpectAnswers(request);

  runner_.FailNextCollect(why);
  ASSERT_TRUE(engine_->Submit(request).ok());
  EXPECT_EQ(Finish({1}).at(RequestId(1)).error, why);
  ExpectAnswers(request);
  EXPECT_EQ(engine_->stats().num_failed_steps, 3u);
  EXPECT_EQ(num_lines, 3);

  // One bad request does not touch its neighbour.
  runner_.Hold();
  runner_.FailRequest(RequestId(2), why);
  ASSERT_TRUE(engine_->Submit(request).ok());
  ASSERT_TRUE(engine_->Submit(MakeRequest(2, {9, 8}, 6)).ok());
  runner_.Release();
  const auto outputs = Finish({1, 2});
  EXPECT_EQ(outputs.at(RequestId(1)).new_token_ids, Tokens(request));
  EXPECT_EQ(outputs.at(RequestId(2)).error, why);
  EXPECT_EQ(engine_->stats().finished_error, 4u);
}

TEST_F(EngineTest, AHungStepIsSeenAndBlocksNobody) {
  StartEngine();
  EXPECT_FALSE(engine_->stats().IsStuck(0));
  runner_.Hold();
  ASSERT_TRUE(engine_->Submit(MakeRequest(1, {1, 2, 3}, 2)).ok());
  while (engine_->stats().num_running == 0) std::this_thread::yield();
  clock_.AdvanceNanos(30'000'000'000);
  // Arrivals are not progress.
  ASSERT_TRUE(engine_->Submit(MakeRequest(2, {1, 2, 3}, 2)).ok());
  const EngineStats stats = engine_->stats();
  EXPECT_DOUBLE_EQ(stats.progress_age_s, 30);
  EXPECT_TRUE(stats.IsStuck(29));
  EXPECT_FALSE(stats.IsStuck(31));
  EXPECT_EQ(stats.num_running, 1);
  EXPECT_EQ(stats.num_waiting, 1);
  EXPECT_TRUE(engine_->Poll().empty());
  EXPECT_FALSE(engine_->WaitIdle(0.001));
  runner_.Release();
  Finish({1, 2});
  EXPECT_FALSE(engine_->stats().IsStuck(0));
  EXPECT_GT(engine_->stats().heartbeat, stats.heartbeat);
}

TEST_F(EngineTest, DrainFinishesWhatWasAccepted) {
  runner_.Hold();
  StartEngine();
  const Request request = MakeRequest(1, {1, 2, 3}, 8);
  ASSERT_TRUE(engine_->Submit(request).ok());
  engine_->Drain();
  EXPECT_TRUE(engine_->stats().draining);
  EXPECT_EQ(engine_->Submit(MakeRequest(2, {1}, 1)).code(), StatusCode::kUnavailable);
  runner_.Release();
  EXPECT_TRUE(engine_->WaitIdle(kLong));
  EXPECT_EQ(Finish({1}).at(RequestId(1)).new_token_ids, Tokens(request));
}

TEST_F(EngineTest, ShutdownAbortsAndOutputsStayReadable) {
  options_.max_in_flight_steps = 2;
  options_.max_num_seqs = 2;
  runner_.Hold();
  StartEngine();
  for (uint64_t id = 1; id <= 4; ++id) {
    ASSERT_TRUE(engine_->Submit(MakeRequest(id, std::vector<int32_t>(60, 1), 100)).ok());
  }
  while (engine_->stats().num_running == 0) std::this_thread::yield();
  std::thread closer([this] { engine_->Shutdown(); });
  while (!engine_->stats().draining) std::this_thread::yield();
  runner_.Release();
  closer.join();
  engine_->Shutdown();
  const std::vector<RequestOutput> outputs = engine_->Wait(kLong);
  ASSERT_EQ(outputs.size(), 4u);
  for (const RequestOutput& output : outputs) {
    EXPECT_EQ(output.finish_reason, FinishReason::kAbort);
  }
  EXPECT_TRUE(engine_->Wait(kLong).empty());  // at once
  EXPECT_EQ(engine_->Submit(MakeRequest(9, {1}, 1)).code(), StatusCode::kUnavailable);
  EXPECT_FALSE(engine_->ResetPrefixCache());
}

TEST_F(EngineTest, ResetForgetsPrefixesOfAnIdleEngine) {
  StartEngine();
  const Request request = MakeRequest(1, {1, 2, 3, 4, 5, 6, 7, 8, 9}, 2);
  ExpectAnswers(request);
  ASSERT_TRUE(engine_->Submit(request).ok());
  EXPECT_EQ(Finish({1}).at(RequestId(1)).num_cached_tokens, 8);
  EXPECT_TRUE(engine_->ResetPrefixCache());
  ASSERT_TRUE(engine_->Submit(request).ok());
  EXPECT_EQ(Finish({1}).at(RequestId(1)).num_cached_tokens, 0);
}

// Passes one second in every step.
class TickingRunner final : public Runner {
 public:
  TickingRunner(FakeRunner* runner, FakeClock* clock)
      : Runner(runner->limits()), runner_(runner), clock_(clock) {}
  Status Execute(const step::StepPlan& plan) override { return runner_->Execute(plan); }
  Status Sample() override { return runner_->Sample(); }
  StatusOr<step::StepResult> Collect() override {
    clock_->AdvanceNanos(1'000'000'000);
    return runner_->Collect();
  }

 private:
  FakeRunner* runner_;
  FakeClock* clock_;
};

TEST_F(EngineTest, TimesAreThoseOfThePhases) {
  options_.max_num_seqs = 1;
  options_.long_prefill_token_threshold = 2;
  auto engine =
      Engine::Create(options_, std::make_unique<TickingRunner>(&runner_, &clock_), &clock_, {});
  ASSERT_TRUE(engine.ok());
  engine_ = std::move(*engine);
  runner_.Hold();
  ASSERT_TRUE(engine_->Submit(MakeRequest(1, {1}, 3)).ok());  // 3 steps
  while (engine_->stats().num_running == 0) std::this_thread::yield();
  // The clock may stand at 0 or 1 here; the first step ends at 1 either way.
  while (clock_.NowNanos() == 0) std::this_thread::yield();
  ASSERT_TRUE(engine_->Submit(MakeRequest(2, {2, 3, 4, 5}, 4)).ok());  // 2 + 3 steps
  runner_.Release();
  const auto outputs = Finish({1, 2});
  const RequestOutput& first = outputs.at(RequestId(1));
  const RequestOutput& second = outputs.at(RequestId(2));
  EXPECT_DOUBLE_EQ(first.queued_s, 0);
  EXPECT_DOUBLE_EQ(first.prefill_s, 1);
  EXPECT_DOUBLE_EQ(first.decode_s, 2);
  EXPECT_DOUBLE_EQ(second.queued_s, 2);
  EXPECT_DOUBLE_EQ(second.prefill_s, 2);
  EXPECT_DOUBLE_EQ(second.decode_s, 3);
  EXPECT_DOUBLE_EQ(engine_->stats().last_step_s, 1);
}

TEST_F(EngineTest, AMatcherIsRefusedIfTheRunnerSamplesWithoutMasks) {
  StartEngine();
  Request request = MakeRequest(1, {1, 2, 3}, 2);
  request.new_token_matcher = []() -> StatusOr<std::unique_ptr<step::TokenMatcher>> {
    return Internal("not called");
  };
  EXPECT_EQ(engine_->Submit(request).code(), StatusCode::kUnimplemented);
}

TEST_F(EngineTest, BadOutputIntervalsAreRefused) {
  for (int64_t micros : {int64_t{-1}, int64_t{1'000'001}}) {
    options_.output_interval_us = micros;
    const auto engine = Engine::Create(options_, &runner_, &clock_, log_);
    EXPECT_EQ(engine.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(engine.status().message().find("from 0 to 1000000"), std::string::npos);
  }
}

TEST_F(EngineTest, BadOptionsAreRefused) {
  const auto code = [this](auto change) {
    EngineOptions options;
    change(options);
    return Engine::Create(options, &runner_, &clock_, {}).status().code();
  };
  EXPECT_EQ(code([](EngineOptions&) {}), StatusCode::kOk);
  const auto kBad = StatusCode::kInvalidArgument;
  EXPECT_EQ(code([](EngineOptions& o) { o.max_num_seqs = 9; }), kBad);
  EXPECT_EQ(code([](EngineOptions& o) { o.max_num_scheduled_tokens = -1; }), kBad);
  EXPECT_EQ(code([](EngineOptions& o) { o.max_in_flight_steps = 0; }), kBad);
  EXPECT_EQ(code([](EngineOptions& o) { o.scheduling_policy = "lifo"; }), kBad);
  EXPECT_EQ(code([](EngineOptions& o) { o.prefix_caching_hash = "md5"; }), kBad);
  EXPECT_EQ(code([](EngineOptions& o) { o.max_waiting_requests = -1; }), kBad);
}

TEST(EngineWithoutCache, AModelThatKeepsNoKvPools) {
  RunnerLimits limits = FakeRunner::DefaultLimits();
  limits.num_blocks = 0;
  limits.pooling = true;
  limits.chunked_prefill = false;
  SteadyClock clock;
  // The fake model reads its context from blocks, so this only looks at what is planned.
  class Pooler final : public Runner {
   public:
    explicit Pooler(const RunnerLimits& limits) : Runner(limits) {}
    Status Execute(const step::StepPlan& plan) override {
      result_ = {plan.step_id, {}};
      for (const step::ScheduledRequest& entry : plan.scheduled) {
        if (entry.has_new_blocks() || entry.sample) return Internal("unexpected plan");
        step::RequestResult& answer = result_.results.emplace_back();
        answer.index = entry.index;
        answer.pooled = FakeModel::Pool(entry.token_ids);
      }
      return OkStatus();
    }
    Status Sample() override { return OkStatus(); }
    StatusOr<step::StepResult> Collect() override { return std::move(result_); }

   private:
    step::StepResult result_;
  };
  auto engine = Engine::Create(EngineOptions(), std::make_unique<Pooler>(limits), &clock, {});
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  Request request = MakeRequest(1, {3, 4, 5}, 1);
  EXPECT_EQ((*engine)->Submit(request).code(), StatusCode::kInvalidArgument);
  request.pooling.emplace();
  ASSERT_TRUE((*engine)->Submit(request).ok());
  const std::vector<RequestOutput> outputs = (*engine)->Wait(kLong);
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].finish_reason, FinishReason::kStop);
  EXPECT_EQ(outputs[0].pooled, FakeModel::Pool(request.prompt_token_ids));
}

}  // namespace
}  // namespace pagemill::engine
