// The engine's steps keep to EngineOptions::max_step_us, on a clock that its runner moves.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cc/base/clock.h"
#include "cc/engine/engine.h"
#include "cc/engine/step_cost.h"
#include "cc/engine/testing/fake_runner.h"
#include "gtest/gtest.h"

namespace pagemill::engine {
namespace {

RunnerLimits Limits() {
  RunnerLimits limits = FakeRunner::DefaultLimits();
  limits.max_num_tokens = 512;
  limits.num_blocks = 600;
  limits.max_model_len = 2048;
  return limits;
}

// A step takes 2 ms, and 0.1 ms for each of its tokens.
class TimedRunner final : public Runner {
 public:
  explicit TimedRunner(FakeClock* clock) : Runner(Limits()), clock_(clock) {}
  Status Execute(const step::StepPlan& plan) override {
    const StepWork work = StepWork::Of(plan);
    const int64_t us = 2000 + 100 * plan.total_num_tokens;
    if (work.num_decoding > 0 && us > longest_us_) longest_us_ = us;
    if (work.num_decoding > 0) {
      most_prefill_tokens_ = std::max(most_prefill_tokens_.load(), work.prefill_tokens);
    }
    clock_->AdvanceNanos(us * 1000);
    return fake_.Execute(plan);
  }
  Status Sample() override { return fake_.Sample(); }
  StatusOr<step::StepResult> Collect() override { return fake_.Collect(); }

  // Of steps with streams.
  int64_t longest_us() const { return longest_us_; }
  int64_t most_prefill_tokens() const { return most_prefill_tokens_; }
  void Forget() { longest_us_ = most_prefill_tokens_ = 0; }

 private:
  FakeClock* const clock_;
  FakeRunner fake_{Limits()};
  std::atomic<int64_t> longest_us_{0}, most_prefill_tokens_{0};
};

class StepBudgetEngineTest : public testing::Test {
 protected:
  void Serve(std::optional<int64_t> max_step_us) {
    EngineOptions options;
    options.max_step_us = max_step_us;
    std::unique_ptr<Engine> engine = *Engine::Create(options, &runner_, &clock_, {});
    Submit(1, 100, 60, engine.get());
    EXPECT_TRUE(engine->WaitIdle(60));
    // Both begin in one step, in which nothing streams. The second prompt goes on beside the first
    // request's tokens.
    engine->Pause(scheduler::PauseMode::kKeep);
    EXPECT_TRUE(engine->WaitPaused(60));
    Submit(2, 40, 600, engine.get());
    Submit(3, 1500, 4, engine.get());
    runner_.Forget();
    engine->Resume();
    EXPECT_TRUE(engine->WaitIdle(60));
    EXPECT_EQ(engine->stats().finished_length, 3u);
    engine->Shutdown();
  }
  static void Submit(uint64_t id, size_t prompt_size, int32_t max_tokens, Engine* engine) {
    step::Request request;
    request.id = step::RequestId(id);
    request.prompt_token_ids = std::vector<int32_t>(prompt_size, static_cast<int32_t>(id));
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    ASSERT_TRUE(engine->Submit(std::move(request)).ok());
  }

  FakeClock clock_;
  TimedRunner runner_{&clock_};
};

TEST_F(StepBudgetEngineTest, StepsWithStreamsKeepToALimit) {
  Serve(8000);
  EXPECT_LE(runner_.longest_us(), 9000);
  EXPECT_GE(runner_.most_prefill_tokens(), 40) << "prompts get what the limit allows";
}

TEST_F(StepBudgetEngineTest, TheAutomaticLimitIsAMultipleOfADecodeStep) {
  Serve(std::nullopt);
  EXPECT_LE(runner_.longest_us(), 2100 * 5 / 2 * 13 / 10);
  EXPECT_GT(runner_.most_prefill_tokens(), 16);
}

TEST_F(StepBudgetEngineTest, WithoutALimitAPromptTakesTheWholeStep) {
  Serve(0);
  EXPECT_EQ(runner_.longest_us(), 2000 + 100 * 512);
}

}  // namespace
}  // namespace pagemill::engine
