// When clients receive outputs (EngineOptions::output_interval_us), step by step.
#include <poll.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include "cc/engine/engine.h"
#include "cc/engine/testing/fake_runner.h"
#include "gtest/gtest.h"

namespace pagemill::engine {
namespace {

using step::Request;
using step::RequestId;

// Finishes a step for each permit.
class SteppingRunner final : public Runner {
 public:
  SteppingRunner() : Runner(FakeRunner::DefaultLimits()) {}
  Status Execute(const step::StepPlan& plan) override { return fake_.Execute(plan); }
  Status Sample() override { return fake_.Sample(); }
  StatusOr<step::StepResult> Collect() override {
    permits_.acquire();
    return fake_.Collect();
  }
  void Permit(std::ptrdiff_t steps) { permits_.release(steps); }

 private:
  FakeRunner fake_{FakeRunner::DefaultLimits()};
  std::counting_semaphore<> permits_{0};
};

class OutputIntervalTest : public testing::Test {
 protected:
  OutputIntervalTest() {
    EngineOptions options;
    options.output_interval_us = 1000;
    options.check_integrity = true;
    engine_ = *Engine::Create(options, &runner_, &clock_, {});
  }
  ~OutputIntervalTest() override {
    runner_.Permit(1000);
    engine_->Shutdown();
  }

  void Submit(uint64_t id, int32_t max_tokens) {
    Request request;
    request.id = RequestId(id);
    request.prompt_token_ids = {1, 2, 3};
    request.sampling.max_tokens = max_tokens;
    ASSERT_TRUE(engine_->Submit(std::move(request)).ok());
  }

  // Lets one step finish and its results be published.
  void Step() {
    runner_.Permit(1);
    ++num_steps_;
    Await([this] { return engine_->stats().num_steps == num_steps_; });
  }

  template <typename Condition>
  void Await(const Condition& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    EXPECT_TRUE(condition());
  }

  bool Heard() const {
    pollfd descriptor{engine_->output_fd(), POLLIN, 0};
    return poll(&descriptor, 1, 0) == 1;
  }

  size_t TakeTokens() {
    size_t tokens = 0;
    for (const RequestOutput& output : engine_->Poll()) tokens += output.new_token_ids.size();
    return tokens;
  }

  FakeClock clock_;
  SteppingRunner runner_;
  std::unique_ptr<Engine> engine_;
  uint64_t num_steps_ = 0;
};

TEST_F(OutputIntervalTest, TokensWaitButFirstOnesAndEndsDoNot) {
  Submit(1, 6);
  Step();
  EXPECT_TRUE(Heard()) << "first token";
  EXPECT_EQ(TakeTokens(), 1u);
  Step();
  Step();
  EXPECT_FALSE(Heard()) << "no time has passed";
  clock_.AdvanceNanos(1'000'000);
  Step();
  EXPECT_TRUE(Heard()) << "the interval is over";
  EXPECT_EQ(TakeTokens(), 3u);
  Step();
  EXPECT_FALSE(Heard());
  Step();
  EXPECT_TRUE(Heard()) << "the end";
  EXPECT_EQ(TakeTokens(), 2u);
}

TEST_F(OutputIntervalTest, WhoLooksGetsWhatThereIs) {
  Submit(1, 20);
  Step();
  EXPECT_EQ(TakeTokens(), 1u);
  Step();
  EXPECT_EQ(TakeTokens(), 1u);
  clock_.AdvanceNanos(1'000'000);
  EXPECT_FALSE(Heard());
  Step();
  EXPECT_TRUE(Heard());
}

TEST_F(OutputIntervalTest, NothingWaitsForAStepWithAPrompt) {
  Submit(1, 20);
  Step();
  EXPECT_EQ(TakeTokens(), 1u);
  Step();
  EXPECT_FALSE(Heard());
  Submit(2, 20);
  Step();  // then a step begins that has the prompt
  Await([this] { return Heard(); });
  EXPECT_EQ(TakeTokens(), 2u);
}

TEST_F(OutputIntervalTest, NothingWaitsWhereNoStepRuns) {
  Submit(1, 200);
  Step();
  EXPECT_EQ(TakeTokens(), 1u);
  Step();
  EXPECT_FALSE(Heard());
  std::atomic<bool> paused{false};
  std::thread pause([&] {
    engine_->Pause(scheduler::PauseMode::kKeep);
    paused = true;
  });
  while (!paused.load()) {  // it is obeyed between two steps
    runner_.Permit(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  pause.join();
  runner_.Permit(1);  // for a step that was started before
  Await([this] { return Heard(); });
  EXPECT_EQ(engine_->stats().num_running, 1);
}

}  // namespace
}  // namespace pagemill::engine
