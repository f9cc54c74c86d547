// Token matchers of requests: engine and native runner together.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "cc/base/clock.h"
#include "cc/engine/engine.h"
#include "cc/runner/model_runner.h"
#include "cc/runner/testing/context_executor.h"
#include "cc/sampling/testing/bracket_matcher.h"
#include "cc/step/token_mask.h"

namespace pagemill {
namespace {

using engine::Engine;
using engine::RequestOutput;
using runner::ContextExecutor;
using runner::ModelRunner;
using sampling::BracketMatcher;
using step::Request;
using step::RequestId;
using step::TokenMatcher;

const std::vector<std::string> kVocabulary = {"(", ")", "[", "]", "x", "y", "()", "</s>"};
constexpr int32_t kEos = 7;

class MaskedEngineTest : public testing::Test {
 protected:
  void Start(int32_t max_forced_tokens = 0, int32_t max_steps_in_flight = 1) {
    engine::RunnerLimits limits;
    limits.max_forced_tokens = max_forced_tokens;
    limits.max_num_tokens = 16;
    limits.max_num_seqs = 4;
    limits.max_model_len = 64;
    limits.vocab_size = model_.vocab_size();
    limits.num_blocks = 40;
    limits.block_size = 4;
    runner_ = *ModelRunner::Create(executor_.get(), &pool_, limits);
    engine::EngineOptions options;
    options.check_integrity = true;
    options.max_in_flight_steps = max_steps_in_flight;
    engine_ = *Engine::Create(options, runner_.get(), &clock_, {});
  }

  static step::TokenMatcherFactory Brackets() {
    return []() -> StatusOr<std::unique_ptr<TokenMatcher>> {
      return std::unique_ptr<TokenMatcher>(std::make_unique<BracketMatcher>(
          sampling::BracketMatcherOptions{.vocabulary = kVocabulary, .eos_token_id = kEos}));
    };
  }
  static Request MakeRequest(uint64_t id) {
    Request request;
    request.id = RequestId(id);
    request.prompt_token_ids = {1, static_cast<int32_t>(id % kEos), 5};
    request.sampling.temperature = id % 2 == 0 ? 0.0f : 1.0f;
    request.sampling.seed = id;
    request.sampling.max_tokens = 30;
    request.sampling.eos_token_ids = {kEos};
    return request;
  }
  RequestOutput Finish(uint64_t id) {
    RequestOutput whole;
    while (!whole.finished()) {
      for (RequestOutput& output : engine_->Wait(10)) {
        EXPECT_EQ(output.request_id, RequestId(id));
        whole.error = output.error;
        whole.finish_reason = output.finish_reason;
        for (int32_t token : output.new_token_ids) whole.new_token_ids.push_back(token);
      }
    }
    return whole;
  }

  const sampling::HashModel model_{{.vocab_size = 8, .seed = 3}};
  std::unique_ptr<ContextExecutor> executor_ = std::make_unique<ContextExecutor>(&model_, 40 * 4);
  device::ThreadPool pool_{{.num_threads = 2}};
  std::unique_ptr<ModelRunner> runner_;
  SteadyClock clock_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(MaskedEngineTest, EveryOutputIsBalanced) {
  Start();
  int ended = 0;
  for (uint64_t id = 1; id <= 30; ++id) {
    Request request = MakeRequest(id);
    request.new_token_matcher = Brackets();
    ASSERT_TRUE(engine_->Submit(request).ok());
    const RequestOutput output = Finish(id);
    ASSERT_TRUE(output.error.ok()) << output.error.ToString();
    auto matcher = *Brackets()();
    for (int32_t token : output.new_token_ids) ASSERT_TRUE(matcher->Accept(token)) << token;
    ended += output.finish_reason == step::FinishReason::kStop;
  }
  EXPECT_GT(ended, 10);
}

// Every fifth token is free, the others follow from it.
class PeriodsMatcher final : public TokenMatcher {
 public:
  Status FillMask(std::span<uint32_t> mask) override {
    std::fill(mask.begin(), mask.end(), 0);
    for (int32_t token = 0; token < 8; ++token) {
      if (MayCome(token)) step::AllowToken(mask, token);
    }
    return OkStatus();
  }
  bool Accept(int32_t token_id) override {
    if (!MayCome(token_id)) return false;
    tokens_.push_back(token_id);
    return true;
  }
  void Rollback(int32_t num_tokens) override {
    tokens_.resize(tokens_.size() - static_cast<size_t>(num_tokens));
  }
  void AppendForced(size_t most, std::vector<int32_t>* token_ids) override {
    const size_t num_known = tokens_.size();
    for (size_t i = 0; i < most && IsForced(); ++i) {
      token_ids->push_back(Forced());
      tokens_.push_back(Forced());
    }
    tokens_.resize(num_known);
  }

 private:
  static constexpr size_t kLength = 25, kPeriod = 5;
  bool IsForced() const { return tokens_.size() < kLength && tokens_.size() % kPeriod != 0; }
  int32_t Forced() const { return (tokens_.back() * 3 + 1) % kEos; }
  bool MayCome(int32_t token_id) const {
    if (tokens_.size() >= kLength) return token_id == kEos;
    return IsForced() ? token_id == Forced() : token_id >= 0 && token_id < kEos;
  }

  std::vector<int32_t> tokens_;
};

TEST_F(MaskedEngineTest, ForcedTokensComeInFewerSteps) {
  const auto run = [&](int32_t max_forced_tokens, int32_t max_steps_in_flight) {
    engine_.reset();
    runner_.reset();
    executor_ = std::make_unique<ContextExecutor>(&model_, 40 * 4, max_steps_in_flight);
    Start(max_forced_tokens, max_steps_in_flight);
    std::vector<std::vector<int32_t>> outputs;
    for (uint64_t id = 1; id <= 10; ++id) {
      Request request = MakeRequest(id);
      request.new_token_matcher = []() -> StatusOr<std::unique_ptr<TokenMatcher>> {
        return std::unique_ptr<TokenMatcher>(std::make_unique<PeriodsMatcher>());
      };
      EXPECT_TRUE(engine_->Submit(request).ok());
      const RequestOutput output = Finish(id);
      EXPECT_EQ(output.finish_reason, step::FinishReason::kStop) << output.error.ToString();
      outputs.push_back(output.new_token_ids);
    }
    return outputs;
  };
  for (const int32_t max_steps_in_flight : {1, 2}) {
    const auto expected = run(0, max_steps_in_flight);
    const int64_t num_steps = executor_->num_steps;
    EXPECT_EQ(run(8, max_steps_in_flight), expected);
    // Of five tokens the first is free, and the second is sampled before the others are known.
    EXPECT_LT(executor_->num_steps, num_steps * 3 / 4);
    EXPECT_EQ(run(1, max_steps_in_flight), expected);
    EXPECT_LT(executor_->num_steps, num_steps);
  }
}

// Makes the matcher of a test wait for the forward pass, and the forward pass for the matcher.
class Meeting {
 public:
  // True if the other one arrived within ten seconds.
  bool Arrive(bool* here, const bool* other) {
    std::unique_lock lock(mutex_);
    *here = true;
    met_.notify_all();
    return met_.wait_for(lock, std::chrono::seconds(10), [other] { return *other; });
  }
  bool in_pass = false, in_matcher = false;

 private:
  std::mutex mutex_;
  std::condition_variable met_;
};

class MeetingMatcher final : public TokenMatcher {
 public:
  explicit MeetingMatcher(Meeting* meeting) : meeting_(meeting) {}
  Status FillMask(std::span<uint32_t> mask) override {
    for (uint32_t& word : mask) word = ~0u;
    if (meeting_->Arrive(&meeting_->in_matcher, &meeting_->in_pass)) return OkStatus();
    return Internal("no forward pass runs while the mask is filled");
  }
  bool Accept(int32_t) override { return true; }
  void Rollback(int32_t) override {}

 private:
  Meeting* meeting_;
};

TEST_F(MaskedEngineTest, MasksAreFilledWhileThePassRuns) {
  Meeting meeting;
  executor_->on_enqueue = [&](const ops::StepBatch&) {
    if (meeting.Arrive(&meeting.in_pass, &meeting.in_matcher)) return OkStatus();
    return Internal("no mask is filled while the pass runs");
  };
  Start();
  Request request = MakeRequest(1);
  request.sampling.max_tokens = 1;
  request.new_token_matcher = [&]() -> StatusOr<std::unique_ptr<TokenMatcher>> {
    return std::unique_ptr<TokenMatcher>(std::make_unique<MeetingMatcher>(&meeting));
  };
  ASSERT_TRUE(engine_->Submit(request).ok());
  const RequestOutput output = Finish(1);
  EXPECT_TRUE(output.error.ok()) << output.error.ToString();
  EXPECT_EQ(output.new_token_ids.size(), 1u);
}

TEST_F(MaskedEngineTest, AFailingMatcherFailsItsRequestOnly) {
  Start();
  Request bad = MakeRequest(1);
  bad.new_token_matcher = []() -> StatusOr<std::unique_ptr<TokenMatcher>> {
    return InvalidArgument("the grammar has no start");
  };
  Request good = MakeRequest(2);
  good.sampling.max_tokens = 5;
  ASSERT_TRUE(engine_->Submit(good).ok());
  ASSERT_TRUE(engine_->Submit(bad).ok());
  int finished = 0;
  while (finished < 2) {
    for (const RequestOutput& output : engine_->Wait(10)) {
      if (!output.finished()) continue;
      ++finished;
      const bool is_bad = output.request_id == bad.id;
      EXPECT_EQ(output.error, is_bad ? InvalidArgument("the grammar has no start") : OkStatus());
    }
  }
}

TEST_F(MaskedEngineTest, AStepThatFailsWaitsForItsMasks) {
  executor_->on_enqueue = [](const ops::StepBatch&) { return Internal("the device is gone"); };
  Start();
  Request request = MakeRequest(2);
  request.new_token_matcher = Brackets();
  ASSERT_TRUE(engine_->Submit(request).ok());
  EXPECT_EQ(Finish(2).error, Internal("the device is gone"));
}

}  // namespace
}  // namespace pagemill
