// What runs while the runner is at rest: RunAtRest(), sleep and wake, weight updates.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/engine/engine.h"
#include "cc/engine/testing/fake_runner.h"
#include "cc/engine/testing/fake_runner_control.h"
#include "gtest/gtest.h"

namespace pagemill::engine {
namespace {

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

class EngineRestTest : public testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.check_integrity = true;
    options.max_in_flight_steps = 3;
    auto engine = Engine::Create(options, &runner_, &clock_, {});
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = std::move(*engine);
  }
  void TearDown() override {
    engine_->Shutdown();
    EXPECT_EQ(runner_.violation(), "");
  }

  void Submit(const Request& request) {
    const Status status = engine_->Submit(request);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  // A request that will take a while, and has begun.
  void SubmitLong(uint64_t id) {
    runner_.SetStepDelayMicros(500);
    Submit(MakeRequest(id, kPrompt, 60));
    while (engine_->stats().num_steps < 5) std::this_thread::yield();
  }
  // Reads until the request is over.
  Tokens Read(uint64_t id) {
    Tokens tokens;
    while (true) {
      const std::vector<RequestOutput> outputs = engine_->Wait(kLong);
      if (outputs.empty()) ADD_FAILURE() << "no output came";
      if (outputs.empty()) return tokens;
      for (const RequestOutput& output : outputs) {
        if (output.request_id != RequestId(id)) continue;
        tokens.insert(tokens.end(), output.new_token_ids.begin(), output.new_token_ids.end());
        if (output.finished()) return tokens;
      }
    }
  }
  int32_t CachedTokens(uint64_t id) {
    Submit(MakeRequest(id, kPrompt, 1));
    const std::vector<RequestOutput> outputs = engine_->Wait(kLong);
    return outputs.empty() ? -1 : outputs.front().num_cached_tokens;
  }

  const Tokens kPrompt{1, 2, 3, 4, 5, 6, 7, 8, 9};
  FakeRunnerControl control_;
  FakeRunner runner_{FakeRunner::DefaultLimits(), &control_};
  FakeClock clock_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineRestTest, ATaskRunsWhileNoStepIsInFlight) {
  SubmitLong(1);
  for (int i = 0; i < 5; ++i) {
    int64_t begun = 0, collected = 0, later = 0;
    const auto look = [&] {
      begun = runner_.num_steps();
      collected = static_cast<int64_t>(engine_->stats().num_steps);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      later = runner_.num_steps();
      return Status(StatusCode::kDataLoss, "from the task");
    };
    EXPECT_EQ(engine_->RunAtRest(look, kLong).message(), "from the task");
    EXPECT_EQ(begun, collected);
    EXPECT_EQ(begun, later);
  }
  EXPECT_EQ(Read(1), Continue(kPrompt, 60));
}

TEST_F(EngineRestTest, APauseStaysWhatItWas) {
  SubmitLong(1);
  engine_->Pause(PauseMode::kWait);
  EXPECT_TRUE(engine_->RunAtRest([] { return OkStatus(); }, kLong).ok());
  EXPECT_TRUE(engine_->stats().paused);
  EXPECT_EQ(Read(1), Continue(kPrompt, 60)) << "the request that runs goes on to its end";
  engine_->Pause(PauseMode::kKeep);
  Submit(MakeRequest(2, {4}, 2));
  EXPECT_TRUE(engine_->RunAtRest([] { return OkStatus(); }, kLong).ok());
  EXPECT_FALSE(engine_->WaitIdle(0.005)) << "it is still paused";
  engine_->Resume();
  EXPECT_EQ(Read(2), Continue({4}, 2));
}

TEST_F(EngineRestTest, RestWithinAPauseThatWaitsIsNotItsEnd) {
  SubmitLong(1);
  runner_.SetStepDelayMicros(3000);
  engine_->Pause(PauseMode::kWait);
  bool paused = true;
  const auto look = [&] {
    paused = engine_->WaitPaused(0);
    return OkStatus();
  };
  EXPECT_TRUE(engine_->RunAtRest(look, kLong).ok());
  EXPECT_FALSE(paused);
}

TEST_F(EngineRestTest, AStuckStepEndsTheWaitAndTheTaskNeverRuns) {
  runner_.Hold();
  Submit(MakeRequest(1, kPrompt, 4));
  while (runner_.num_steps() == 0) std::this_thread::yield();
  std::atomic<bool> ran = false;
  const auto run = [&ran] {
    ran = true;
    return OkStatus();
  };
  const Status status = engine_->RunAtRest(run, 0.01);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("10 ms"), std::string::npos) << status.message();
  runner_.Release();
  EXPECT_EQ(Read(1), Continue(kPrompt, 4));
  EXPECT_FALSE(ran);
}

TEST_F(EngineRestTest, TasksOfManyClientsRunOneAfterTheOther) {
  SubmitLong(1);
  std::atomic<int> inside = 0, done = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back([&] {
      const auto run = [&] {
        EXPECT_EQ(++inside, 1);
        --inside;
        ++done;
        return OkStatus();
      };
      EXPECT_TRUE(engine_->RunAtRest(run, kLong).ok());
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(done, 6);
  EXPECT_EQ(Read(1), Continue(kPrompt, 60));
}

TEST_F(EngineRestTest, AfterTheShutdownNothingRuns) {
  engine_->Shutdown();
  const auto run = [] { return Internal("it ran"); };
  EXPECT_EQ(engine_->RunAtRest(run, kLong).code(), StatusCode::kUnavailable);
  EXPECT_EQ(engine_->Sleep(KvMemory::kKeep, kLong).code(), StatusCode::kUnavailable);
}

TEST_F(EngineRestTest, AShutdownRefusesTasksThatStillWait) {
  runner_.Hold();
  Submit(MakeRequest(1, kPrompt, 4));
  while (runner_.num_steps() == 0) std::this_thread::yield();
  Status status;
  std::thread client([&] { status = engine_->RunAtRest([] { return OkStatus(); }, kLong); });
  std::thread closing([&] { engine_->Shutdown(); });
  while (!engine_->stats().draining) std::this_thread::yield();
  runner_.Release();
  closing.join();
  client.join();
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kUnavailable) << status.ToString();
}

TEST_F(EngineRestTest, RequestsUnderWayGoOnAfterSleep) {
  for (KvMemory kv : {KvMemory::kKeep, KvMemory::kFree}) {
    SubmitLong(1);
    ASSERT_TRUE(engine_->Sleep(kv, kLong).ok());
    EXPECT_EQ(control_.asleep(), kv);
    EXPECT_TRUE(engine_->stats().asleep);
    const int64_t begun = runner_.num_steps();
    clock_.AdvanceNanos(100'000'000'000);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_EQ(runner_.num_steps(), begun);
    EXPECT_EQ(engine_->stats().progress_age_s, 0) << "it sleeps, it is not stuck";
    ASSERT_TRUE(engine_->Wake(kLong).ok());
    EXPECT_FALSE(engine_->stats().asleep);
    EXPECT_EQ(Read(1), Continue(kPrompt, 60));
  }
}

TEST_F(EngineRestTest, NewRequestsAreRefusedWithASentenceWhileItSleeps) {
  ASSERT_TRUE(engine_->Sleep(KvMemory::kKeep, kLong).ok());
  const Status status = engine_->Submit(MakeRequest(1, kPrompt, 4));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("asleep"), std::string::npos) << status.message();
  ASSERT_TRUE(engine_->Wake(kLong).ok());
  ASSERT_TRUE(engine_->Wake(kLong).ok()) << "a second time nothing happens";
  Submit(MakeRequest(1, kPrompt, 4));
  EXPECT_EQ(Read(1), Continue(kPrompt, 4));
}

TEST_F(EngineRestTest, OnlyKvThatIsFreedIsForgotten) {
  Submit(MakeRequest(1, kPrompt, 4));
  Read(1);
  ASSERT_TRUE(engine_->Sleep(KvMemory::kKeep, kLong).ok());
  ASSERT_TRUE(engine_->Wake(kLong).ok());
  EXPECT_EQ(CachedTokens(2), 8);
  ASSERT_TRUE(engine_->Sleep(KvMemory::kKeep, kLong).ok());
  ASSERT_TRUE(engine_->Sleep(KvMemory::kFree, kLong).ok()) << "more may be freed";
  EXPECT_EQ(control_.asleep(), KvMemory::kFree);
  ASSERT_TRUE(engine_->Wake(kLong).ok());
  EXPECT_EQ(CachedTokens(3), 0);
}

TEST_F(EngineRestTest, AFailureLeavesTheStateAsItWas) {
  control_.FailNext(ResourceExhausted("no"));
  EXPECT_EQ(engine_->Sleep(KvMemory::kFree, kLong).message(), "no");
  EXPECT_FALSE(engine_->stats().asleep);
  ASSERT_TRUE(engine_->Sleep(KvMemory::kFree, kLong).ok());
  control_.FailNext(ResourceExhausted("no memory"));
  EXPECT_EQ(engine_->Wake(kLong).message(), "no memory");
  EXPECT_TRUE(engine_->stats().asleep);
  ASSERT_TRUE(engine_->Wake(kLong).ok());
  Submit(MakeRequest(1, kPrompt, 4));
  EXPECT_EQ(Read(1), Continue(kPrompt, 4));
}

TEST_F(EngineRestTest, AShutdownEndsRequestsThatSleep) {
  SubmitLong(1);
  ASSERT_TRUE(engine_->Sleep(KvMemory::kKeep, kLong).ok());
  engine_->Shutdown();
  std::vector<RequestOutput> outputs = engine_->Poll();
  ASSERT_FALSE(outputs.empty());
  EXPECT_EQ(outputs.back().finish_reason, FinishReason::kAbort);
}

TEST_F(EngineRestTest, AnUpdateForgetsKvUnlessItFails) {
  Submit(MakeRequest(1, kPrompt, 4));
  Read(1);
  control_.FailNext(InvalidArgument("weight 'w' is f32[2]"));
  EXPECT_EQ(engine_->UpdateWeights({{"model", "other"}}, kLong).message(), "weight 'w' is f32[2]");
  EXPECT_TRUE(control_.sources().empty());
  EXPECT_EQ(CachedTokens(2), 8);
  ASSERT_TRUE(engine_->UpdateWeights({{"model", "other"}}, kLong).ok());
  EXPECT_EQ(control_.sources().at("model"), "other");
  EXPECT_EQ(CachedTokens(3), 0);
}

TEST_F(EngineRestTest, AnUpdateWhoseDeviceFailsLetsTheEngineSleep) {
  control_.FailDevice(Internal("device"));
  EXPECT_EQ(engine_->UpdateWeights({{"model", "other"}}, kLong).message(), "device");
  EXPECT_TRUE(engine_->stats().asleep);
  ASSERT_TRUE(engine_->Wake(kLong).ok());
  EXPECT_FALSE(control_.asleep());
  Submit(MakeRequest(1, kPrompt, 4));
  EXPECT_EQ(Read(1), Continue(kPrompt, 4));
}

TEST_F(EngineRestTest, RequestsUnderWayComputeAllTokensAgainAfterAnUpdate) {
  SubmitLong(1);
  ASSERT_TRUE(engine_->UpdateWeights({{"model", "other"}}, kLong).ok());
  EXPECT_EQ(Read(1), Continue(kPrompt, 60));
  EXPECT_GE(engine_->stats().num_preemptions, 1u);
}

using Versions = std::vector<std::pair<int32_t, std::string>>;

TEST_F(EngineRestTest, AnOutputSaysWhichWeightsGaveEachToken) {
  const auto versions_of = [this](uint64_t id) {
    while (true) {
      for (const RequestOutput& output : engine_->Wait(kLong)) {
        if (output.request_id == RequestId(id) && output.finished()) return output.weight_versions;
      }
    }
  };
  Submit(MakeRequest(1, kPrompt, 4));
  EXPECT_EQ(versions_of(1), Versions()) << "the weights have no version";

  SubmitLong(2);
  runner_.SetStepDelayMicros(5000);  // it lasts until the end of what follows
  const WeightSources sources = {{"model", "other"}};
  control_.FailNext(InvalidArgument("no"));
  EXPECT_FALSE(engine_->UpdateWeights(sources, kLong, NewWeights::kOver, "a").ok());
  ASSERT_TRUE(engine_->UpdateWeights(sources, kLong, NewWeights::kOver, "b").ok());
  EXPECT_EQ(control_.where(), NewWeights::kOver);
  const uint64_t steps = engine_->stats().num_steps;
  while (engine_->stats().num_steps < steps + 5) std::this_thread::yield();
  engine_->Pause(PauseMode::kKeep);
  ASSERT_TRUE(engine_->SetWeightVersion("c", kLong).ok());
  ASSERT_TRUE(engine_->SetWeightVersion("d", kLong).ok());
  engine_->Resume();
  const Versions found = versions_of(2);
  ASSERT_GE(found.size(), 3u);
  EXPECT_EQ(found[0], std::pair(0, std::string()));
  EXPECT_EQ(found[1].second, "b");
  EXPECT_EQ(found.back().second, "d");
  EXPECT_LT(found[1].first, found.back().first);
  EXPECT_LT(found.back().first, 60);

  Submit(MakeRequest(3, kPrompt, 4));
  EXPECT_EQ(versions_of(3), (Versions{{0, "d"}}));
}

// Prompts of 9 tokens have two full blocks.
class EnginePrefixTest : public EngineRestTest {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.check_integrity = true;
    options.max_pinned_blocks = 3;
    options.max_kv_events = 8;
    engine_ = *Engine::Create(options, &runner_, &clock_, {});
  }
};

TEST_F(EnginePrefixTest, WhatIsPinnedStaysCached) {
  const Request like = MakeRequest(99, kPrompt, 1);
  EXPECT_EQ(engine_->PinPrefix(like).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(CachedTokens(1), 0);
  const auto pinned = engine_->PinPrefix(like);
  ASSERT_TRUE(pinned.ok()) << pinned.status().ToString();
  EXPECT_EQ(pinned->num_tokens, 8);
  EXPECT_EQ(engine_->PinPrefix(like).status().code(), StatusCode::kResourceExhausted);
  for (uint64_t id = 2; id < 6; ++id) {  // each takes more than half of the pool
    Submit(MakeRequest(id, Tokens(126, static_cast<int32_t>(id)), 1));
    Read(id);
    Submit(MakeRequest(id + 10, Tokens(126, static_cast<int32_t>(id) + 10), 1));
    Read(id + 10);
  }
  EXPECT_EQ(CachedTokens(20), 8);
  EXPECT_TRUE(engine_->UnpinPrefix(pinned->id));
  EXPECT_FALSE(engine_->UnpinPrefix(pinned->id));
}

TEST_F(EnginePrefixTest, EventsArePolledAndThoseThatAreLostAreCounted) {
  EXPECT_EQ(CachedTokens(1), 0);
  const auto first = engine_->KvEvents(1);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  ASSERT_FALSE(first->events.empty());
  EXPECT_EQ(first->events.front().type, kv_cache::KvEvent::Type::kStored);
  EXPECT_EQ(first->next, first->events.size() + 1);
  EXPECT_TRUE(engine_->KvEvents(first->next)->events.empty());
  EXPECT_EQ(engine_->KvEvents(first->next + 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine_->KvEvents(0).status().code(), StatusCode::kInvalidArgument);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(engine_->ResetPrefixCache());
  const auto later = engine_->KvEvents(first->next);
  EXPECT_EQ(later->log_id, first->log_id);
  EXPECT_EQ(later->events.size(), 8u);
  EXPECT_EQ(later->dropped, 12u);
  EXPECT_EQ(later->events.back().type, kv_cache::KvEvent::Type::kCleared);
  const auto part = engine_->KvEvents(first->next, 3);
  EXPECT_EQ(part->events.size(), 3u);
  EXPECT_EQ(part->next, later->next - 5);
}

TEST_F(EngineRestTest, EventsAndPinsAreOptional) {
  EXPECT_EQ(engine_->KvEvents(1).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(CachedTokens(1), 0);
  EXPECT_EQ(engine_->PinPrefix(MakeRequest(9, kPrompt, 1)).status().code(),
            StatusCode::kResourceExhausted);
}

TEST_F(EngineRestTest, WithoutAControlThereIsASentence) {
  FakeRunner runner(FakeRunner::DefaultLimits());
  const auto engine = *Engine::Create(EngineOptions{}, &runner, &clock_, {});
  for (const Status& status :
       {engine->Sleep(KvMemory::kKeep, 1), engine->Wake(1), engine->UpdateWeights({}, 1)}) {
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_NE(status.message().find("--executor native"), std::string::npos);
  }
}

}  // namespace
}  // namespace pagemill::engine
