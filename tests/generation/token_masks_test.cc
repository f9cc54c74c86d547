// Token matchers of requests: engine and native runner together.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cc/base/clock.h"
#include "cc/engine/engine.h"
#include "cc/runner/model_runner.h"
#include "cc/runner/testing/context_executor.h"
#include "cc/sampling/testing/bracket_matcher.h"

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
  void Start() {
    engine::RunnerLimits limits;
    limits.max_num_tokens = 16;
    limits.max_num_seqs = 4;
    limits.max_model_len = 64;
    limits.vocab_size = model_.vocab_size();
    limits.num_blocks = 40;
    limits.block_size = 4;
    runner_ = *ModelRunner::Create(&executor_, &pool_, limits);
    engine::EngineOptions options;
    options.check_integrity = true;
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
  ContextExecutor executor_{&model_, 40 * 4};
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
  executor_.on_enqueue = [&](const ops::StepBatch&) {
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
  executor_.on_enqueue = [](const ops::StepBatch&) { return Internal("the device is gone"); };
  Start();
  Request request = MakeRequest(2);
  request.new_token_matcher = Brackets();
  ASSERT_TRUE(engine_->Submit(request).ok());
  EXPECT_EQ(Finish(2).error, Internal("the device is gone"));
}

}  // namespace
}  // namespace pagemill
