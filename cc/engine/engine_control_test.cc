// What clients ask of requests that are under way and of the engine as a whole: input in parts,
// held starts, deadlines, pause and resume, resets of the prefix cache.
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/base/timeline.h"
#include "cc/engine/engine.h"
#include "cc/engine/step_timeline.h"
#include "cc/engine/testing/fake_runner.h"
#include "gtest/gtest.h"

namespace pagemill::engine {
namespace {

using scheduler::InputPart;
using scheduler::PauseMode;
using step::FakeModel;
using step::FinishReason;
using step::Request;
using step::RequestId;
using Tokens = std::vector<int32_t>;

constexpr double kLong = 60;  // seconds: longer than any step takes on a loaded machine

Request MakeRequest(uint64_t id, Tokens prompt, int32_t max_tokens) {
  Request request;
  request.id = RequestId(id);
  request.prompt_token_ids = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  return request;
}

Tokens Continue(const Tokens& context, size_t count) {
  return FakeModel::Continue(context, count, FakeRunner::DefaultLimits().vocab_size);
}

class EngineControlTest : public testing::Test {
 protected:
  void Start(const Clock* clock) {
    EngineOptions options;
    options.check_integrity = true;
    auto engine = Engine::Create(options, &runner_, clock, {});
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = std::move(*engine);
  }
  void SetUp() override { Start(&clock_); }
  void TearDown() override {
    engine_->Shutdown();
    EXPECT_EQ(runner_.violation(), "");
  }

  void Submit(const Request& request) {
    const Status status = engine_->Submit(request);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  // Reads until the request, or a turn of it, is over: the last output, with all new tokens.
  RequestOutput Read(uint64_t id) {
    RequestOutput sum;
    while (true) {
      std::vector<RequestOutput> outputs = engine_->Wait(kLong);
      if (outputs.empty()) ADD_FAILURE() << "nothing came";
      if (outputs.empty()) return sum;
      for (RequestOutput& output : outputs) {
        if (output.request_id != RequestId(id)) continue;
        Tokens tokens = std::move(sum.new_token_ids);
        tokens.insert(tokens.end(), output.new_token_ids.begin(), output.new_token_ids.end());
        sum = std::move(output);
        sum.new_token_ids = std::move(tokens);
        if (sum.finished() || sum.turn_finished) return sum;
      }
    }
  }
  void WaitUntilRunning(int64_t count) const {
    while (engine_->stats().num_running != count) std::this_thread::yield();
  }

  FakeRunner runner_{FakeRunner::DefaultLimits()};
  FakeClock clock_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineControlTest, InputInPartsGivesTheTokensOfTheWhole) {
  Request request = MakeRequest(1, {1, 2, 3, 4, 5}, 6);
  request.streaming_input = true;
  Submit(request);
  EXPECT_TRUE(engine_->Extend(RequestId(1), {{6, 7}, {}, InputPart::kMore}).ok());
  EXPECT_TRUE(engine_->Extend(RequestId(1), {{8}}).ok());
  const RequestOutput output = Read(1);
  EXPECT_EQ(output.new_token_ids, Continue({1, 2, 3, 4, 5, 6, 7, 8}, 6));
  EXPECT_EQ(output.finish_reason, FinishReason::kLength);
}

TEST_F(EngineControlTest, TurnsEndWithAnOutputAndGoOnWithInput) {
  Request request = MakeRequest(1, {1, 2, 3}, 4);
  request.streaming_input = true;
  Submit(request);
  ASSERT_TRUE(engine_->Extend(RequestId(1), {{}, {}, InputPart::kTurn}).ok());
  const RequestOutput first = Read(1);
  EXPECT_EQ(first.turn_finished, FinishReason::kLength);
  EXPECT_FALSE(first.finished());
  Tokens context{1, 2, 3};
  context.insert(context.end(), first.new_token_ids.begin(), first.new_token_ids.end());
  context.push_back(9);
  ASSERT_TRUE(engine_->Extend(RequestId(1), {{9}}).ok());
  const RequestOutput second = Read(1);
  EXPECT_TRUE(second.finished());
  EXPECT_EQ(second.new_token_ids, Continue(context, 4));
}

TEST_F(EngineControlTest, TheEndOfATurnIsReadBeforeTheNextTurnBegins) {
  Request request = MakeRequest(1, {1, 2, 3}, 4);
  request.streaming_input = true;
  Submit(request);
  ASSERT_TRUE(engine_->Extend(RequestId(1), {{}, {}, InputPart::kTurn}).ok());
  Status status = OkStatus();
  while (status.message().find("not been read") == std::string::npos) {  // it generates until then
    status = engine_->Extend(RequestId(1), {{9}});
    ASSERT_EQ(status.code(), StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(Read(1).turn_finished, FinishReason::kLength);
  EXPECT_TRUE(engine_->Extend(RequestId(1), {{9}}).ok());
  EXPECT_TRUE(Read(1).finished());
}

TEST_F(EngineControlTest, ExtendIsRefusedWithASentence) {
  EXPECT_EQ(engine_->Extend(RequestId(7), {{1}}).code(), StatusCode::kNotFound);
  engine_->Shutdown();
  EXPECT_EQ(engine_->Extend(RequestId(7), {{1}}).code(), StatusCode::kUnavailable);
}

TEST_F(EngineControlTest, AHeldRequestStartsWhenItIsReleased) {
  Request held = MakeRequest(1, {1, 2}, 3);
  held.starts_held = true;
  Submit(held);
  Submit(MakeRequest(2, {3}, 3));
  EXPECT_TRUE(Read(2).finished());
  EXPECT_TRUE(engine_->Poll().empty());
  engine_->Release(RequestId(99));
  engine_->Release(RequestId(1));
  EXPECT_EQ(Read(1).new_token_ids, Continue({1, 2}, 3));
}

TEST_F(EngineControlTest, WhoWaitsForItsClientIsNotStuck) {
  Request held = MakeRequest(1, {1, 2}, 3);
  held.starts_held = true;
  Submit(held);
  clock_.AdvanceNanos(100'000'000'000);
  EXPECT_EQ(engine_->stats().progress_age_s, 0);
  engine_->Release(RequestId(1));
  EXPECT_TRUE(Read(1).finished());
}

TEST_F(EngineControlTest, APauseThatKeepsPlansNoStep) {
  runner_.SetStepDelayMicros(1000);
  Submit(MakeRequest(1, {1, 2, 3}, 60));
  WaitUntilRunning(1);
  engine_->Pause(PauseMode::kKeep);
  ASSERT_TRUE(engine_->WaitPaused(kLong));
  const EngineStats before = engine_->stats();
  EXPECT_TRUE(before.paused);
  EXPECT_EQ(before.num_running, 1);
  Submit(MakeRequest(2, {4}, 2));
  clock_.AdvanceNanos(100'000'000'000);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(engine_->stats().num_steps, before.num_steps);
  EXPECT_EQ(engine_->stats().progress_age_s, 0);
  engine_->Resume();
  EXPECT_FALSE(engine_->stats().paused);
  EXPECT_EQ(Read(1).new_token_ids, Continue({1, 2, 3}, 60));
}

TEST_F(EngineControlTest, APauseThatWaitsFinishesWhatStarted) {
  runner_.SetStepDelayMicros(200);
  Submit(MakeRequest(1, {1, 2, 3}, 40));
  WaitUntilRunning(1);
  engine_->Pause(PauseMode::kWait);
  Submit(MakeRequest(2, {4}, 2));
  EXPECT_EQ(Read(1).new_token_ids, Continue({1, 2, 3}, 40));
  EXPECT_TRUE(engine_->WaitPaused(kLong));
  EXPECT_TRUE(engine_->Poll().empty());
  engine_->Resume();
  EXPECT_EQ(Read(2).new_token_ids, Continue({4}, 2));
}

TEST_F(EngineControlTest, APauseThatAbortsEndsAll) {
  runner_.SetStepDelayMicros(200);
  Submit(MakeRequest(1, {1, 2, 3}, 60));
  WaitUntilRunning(1);
  engine_->Pause(PauseMode::kAbort);
  EXPECT_EQ(Read(1).finish_reason, FinishReason::kAbort);
  EXPECT_TRUE(engine_->WaitPaused(kLong));
  Submit(MakeRequest(2, {4}, 2));
  EXPECT_FALSE(engine_->WaitIdle(0.005));
  engine_->Resume();
  EXPECT_TRUE(Read(2).finished());
}

TEST_F(EngineControlTest, WithoutAPauseNobodyWaitsForOne) {
  EXPECT_FALSE(engine_->WaitPaused(0.001));
  engine_->Resume();
  engine_->Shutdown();
  engine_->Pause(PauseMode::kKeep);
  EXPECT_FALSE(engine_->stats().paused);
}

TEST_F(EngineControlTest, AResetMayPreemptWhatRuns) {
  runner_.SetStepDelayMicros(500);
  Submit(MakeRequest(1, {1, 2, 3, 4, 5, 6, 7, 8, 9}, 50));
  WaitUntilRunning(1);
  EXPECT_FALSE(engine_->ResetPrefixCache());
  EXPECT_TRUE(engine_->ResetPrefixCache(/*preempt_running=*/true));
  EXPECT_EQ(Read(1).new_token_ids, Continue({1, 2, 3, 4, 5, 6, 7, 8, 9}, 50));
  EXPECT_GE(engine_->stats().num_preemptions, 1u);
}

TEST_F(EngineControlTest, ADeadlineThatPassesEndsTheRequest) {
  Request late = MakeRequest(1, {1, 2}, 3);
  late.starts_held = true;
  late.start_deadline_us = 5'000'000;
  Submit(late);
  Submit(MakeRequest(2, {3}, 3));
  EXPECT_TRUE(Read(2).finished());
  clock_.AdvanceNanos(5'000'000'000);
  Submit(MakeRequest(3, {4}, 3));  // a fake clock does not wake the engine
  const RequestOutput output = Read(1);
  EXPECT_EQ(output.finish_reason, FinishReason::kError);
  EXPECT_EQ(output.error.code(), StatusCode::kDeadlineExceeded);
}

TEST_F(EngineControlTest, AnIdleEngineWakesForADeadline) {
  engine_->Shutdown();
  runner_.Restart();
  const SteadyClock clock;
  Start(&clock);
  Request late = MakeRequest(1, {1, 2}, 3);
  late.starts_held = true;
  late.deadline_us = clock.NowNanos() / 1000 + 20'000;
  Submit(late);
  EXPECT_EQ(Read(1).error.code(), StatusCode::kDeadlineExceeded);
  EXPECT_GE(clock.NowNanos() / 1000, *late.deadline_us);
  engine_->Shutdown();  // before its clock goes
}

class EngineAdaptersTest : public testing::Test {
 protected:
  static RunnerLimits Limits() {
    RunnerLimits limits = FakeRunner::DefaultLimits();
    limits.max_adapters = 2;
    return limits;
  }
  std::unique_ptr<Engine> Start() {
    return *Engine::Create(EngineOptions{}, &runner_, &clock_, {});
  }
  Status Submit(Engine* engine, step::AdapterId adapter) {
    Request request = MakeRequest(++num_requests_, {1, 2, 3}, 1);
    request.adapter = adapter;
    return engine->Submit(request);
  }

  FakeRunner runner_{Limits()};
  SteadyClock clock_;
  uint64_t num_requests_ = 0;
};

TEST_F(EngineAdaptersTest, EachLoadHasAnIdOfItsOwnAndNoOtherIdIsTaken) {
  const std::unique_ptr<Engine> engine = Start();
  EXPECT_EQ(Submit(engine.get(), step::AdapterId(1)).code(), StatusCode::kInvalidArgument);
  const step::AdapterId first = engine->NewAdapterId(), second = engine->NewAdapterId();
  EXPECT_NE(first, second);
  EXPECT_NE(first, step::kNoAdapter);
  EXPECT_EQ(Submit(engine.get(), step::kNoAdapter), OkStatus());
  EXPECT_EQ(Submit(engine.get(), first), OkStatus());
  EXPECT_EQ(Submit(engine.get(), second), OkStatus());
  const Status status = Submit(engine.get(), step::AdapterId(second.value() + 1));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("NewAdapterId"), std::string::npos) << status.message();
  EXPECT_FALSE(Submit(engine.get(), step::AdapterId(first.value() - 1)).ok());
  EXPECT_TRUE(engine->WaitIdle(kLong));
}

// Blocks of files and sessions outlive the engine that issued the ids they were computed under.
TEST_F(EngineAdaptersTest, IdsOfAnotherEngineAreOthers) {
  const step::AdapterId before = Start()->NewAdapterId();
  runner_.Restart();
  const std::unique_ptr<Engine> engine = Start();
  EXPECT_NE(engine->NewAdapterId(), before);
  EXPECT_FALSE(Submit(engine.get(), before).ok());
}

TEST_F(EngineControlTest, RecordsThePartsOfItsStepsWhileAsked) {
  const auto timeline = std::make_shared<Timeline>(TimelineOptions{}, &clock_);
  bool attached = false;
  ASSERT_TRUE(engine_->Record(timeline, [&attached] { attached = true; }).ok());
  EXPECT_TRUE(attached);
  Submit(MakeRequest(1, {1, 2, 3}, 4));
  Read(1);
  ASSERT_TRUE(engine_->Record(nullptr, [] {}).ok());
  EXPECT_EQ(timeline->num_steps(), 4);
  EXPECT_GE(timeline->num_events(), 4 * static_cast<int64_t>(kStepPartNames.size()));
  const int64_t num_events = timeline->num_events();
  Submit(MakeRequest(2, {1, 2, 3}, 4));
  Read(2);
  EXPECT_EQ(timeline->num_events(), num_events);

  const std::string path = testing::TempDir() + "/steps.json";
  ASSERT_TRUE(timeline->WriteChromeTrace(path).ok());
  std::ifstream file(path);
  const std::string json(std::istreambuf_iterator<char>(file), {});
  for (const char* part : kStepPartNames) {
    EXPECT_NE(json.find(std::string("\"name\":\"") + part + '"'), std::string::npos) << part;
  }
  EXPECT_NE(json.find(R"("name":"execute","args":{"requests":1,"tokens":3})"), std::string::npos);
}

TEST_F(EngineControlTest, ARecordingThatIsFullTakesNoMoreSteps) {
  const auto timeline = std::make_shared<Timeline>(TimelineOptions{.max_steps = 2}, &clock_);
  ASSERT_TRUE(engine_->Record(timeline, [] {}).ok());
  Submit(MakeRequest(1, {1, 2, 3}, 9));
  Read(1);
  ASSERT_TRUE(engine_->Record(nullptr, [] {}).ok());
  EXPECT_TRUE(timeline->full());
}

}  // namespace
}  // namespace pagemill::engine
