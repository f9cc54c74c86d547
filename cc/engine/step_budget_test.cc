#include "cc/engine/step_budget.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/scheduler/scheduler.h"
#include "gtest/gtest.h"

namespace pagemill::engine {
namespace {

using scheduler::StepBudget;

// What a step costs on a machine, in microseconds: the longer of reading and computing.
struct Costs {
  std::string name;
  double fixed, decode_token, context, prefill_token, prefill_context;
  double free_tokens = 0;  // so many prefill tokens cost nothing, because weights are read anyway
  double noise = 0.1;      // relative
  double stall_every = 100;
};

void PrintTo(const Costs& costs, std::ostream* out) { *out << costs.name; }

class StepBudgetProperty : public testing::TestWithParam<Costs> {
 protected:
  double Exact(const StepWork& work) const {
    const Costs& c = GetParam();
    const auto prefill = static_cast<double>(work.prefill_tokens);
    return c.fixed + c.decode_token * static_cast<double>(work.decode_tokens) +
           c.context * static_cast<double>(work.decode_context) +
           c.prefill_token * std::max(0.0, prefill - c.free_tokens) +
           c.prefill_context * static_cast<double>(work.prefill_context);
  }
  double Uniform() { return static_cast<double>(random_()) / 4294967296.0; }
  int64_t Measured(double exact) {
    const Costs& c = GetParam();
    const double stall = c.stall_every > 0 && Uniform() * c.stall_every < 1 ? 20 : 1;
    return static_cast<int64_t>(exact * stall * (1 + c.noise * 2 * (Uniform() - 0.5)));
  }

  // Requests come and go; `p99` of the steps with streams, relative to the limit.
  void Serve(std::optional<int64_t> max_step_us, int num_steps, double* p99) {
    scheduler::SchedulerOptions options;
    options.max_num_tokens = 2048;
    options.max_num_seqs = 16;
    options.max_model_len = 4096;
    options.vocab_size = 97;
    options.kv_cache.num_blocks = 6000;
    options.kv_cache.block_size = 16;
    options.kv_cache.enable_prefix_caching = false;
    scheduler_ = std::move(*scheduler::Scheduler::Create(options));
    StepBudgeter budgeter(max_step_us);
    std::vector<double> over;
    uint64_t next_id = 1;
    for (int i = 0; i < num_steps; ++i) {
      while (scheduler_->stats().num_running + scheduler_->stats().num_waiting < 16) {
        step::Request request;
        request.id = step::RequestId(next_id++);
        request.prompt_token_ids = std::vector<int32_t>(
            16 + static_cast<size_t>(Uniform() * (next_id % 10 == 0 ? 2000 : 200)));
        request.sampling.max_tokens = 1 + static_cast<int32_t>(Uniform() * 64);
        ASSERT_TRUE(scheduler_->Add(std::move(request)).ok());
      }
      const StepBudget budget = budgeter.Next(scheduler_->num_decoding());
      scheduler_->Schedule(&plan_, budget);
      const StepWork work = StepWork::Of(plan_);
      if (budget.prefill_tokens != StepBudget::kNoLimit) {
        EXPECT_GE(budget.prefill_tokens, StepBudgeter::kLeastTokens);
        EXPECT_LE(work.prefill_tokens, budget.prefill_tokens);
        if (i > 200 && budget.prefill_tokens > StepBudgeter::kLeastTokens) {
          over.push_back(Exact(work) / Limit(max_step_us, work));
        }
      }
      num_prefill_tokens_ += work.prefill_tokens;
      budgeter.Observe(work, Measured(Exact(work)));
      FinishWithZeros();
    }
    std::sort(over.begin(), over.end());
    *p99 = over.empty() ? 0 : over[over.size() * 99 / 100];
  }

  double Limit(std::optional<int64_t> max_step_us, StepWork work) const {
    if (max_step_us) return static_cast<double>(*max_step_us);
    work.prefill_tokens = work.prefill_context = 0;
    return std::max(static_cast<double>(StepBudgeter::kLeastAutomaticMicros),
                    StepBudgeter::kAutomaticMultiple * Exact(work));
  }

  void FinishWithZeros() {
    step::StepResult result;
    result.step_id = plan_.step_id;
    for (const step::ScheduledRequest& entry : plan_.scheduled) {
      step::RequestResult& answer = result.results.emplace_back();
      answer.index = entry.index;
      if (entry.sample) answer.sampled_token_ids = {0};
    }
    ASSERT_TRUE(scheduler_->Update(std::move(result), &events_).ok());
    events_.clear();
  }

  std::unique_ptr<scheduler::Scheduler> scheduler_;
  step::StepPlan plan_;
  std::vector<scheduler::RequestEvent> events_;
  std::mt19937 random_{3};
  int64_t num_prefill_tokens_ = 0;
};

TEST_P(StepBudgetProperty, StepsKeepToTheAutomaticLimit) {
  double p99 = 0;
  Serve(std::nullopt, 3000, &p99);
  EXPECT_LT(p99, 1.5);
  EXPECT_GT(num_prefill_tokens_, 3000 * 8);
}

TEST_P(StepBudgetProperty, StepsKeepToALimit) {
  const auto decode_us =
      static_cast<int64_t>(Exact({.decode_tokens = 16, .decode_context = 16 * 400}));
  double p99 = 0;
  Serve(2 * decode_us, 3000, &p99);
  EXPECT_LT(p99, 1.5);
  EXPECT_GT(num_prefill_tokens_, 3000 * 8);
}

TEST_P(StepBudgetProperty, PromptsAdvanceUnderALimitThatNoStepKeeps) {
  double p99 = 0;
  Serve(1, 500, &p99);
  EXPECT_GT(num_prefill_tokens_, 500 * 8);
}

INSTANTIATE_TEST_SUITE_P(Machines, StepBudgetProperty,
                         testing::Values(Costs{"SmallModelOnCpu", 3000, 300, 0.2, 280, 0.03},
                                         Costs{"SlowModelOnCpu", 90000, 2000, 2, 4000, 0.3},
                                         Costs{"MemoryBound", 8000, 20, 0.05, 40, 0.002, 150},
                                         Costs{"FixedCostOnly", 20000, 0, 0, 0, 0},
                                         Costs{"Noisy", 3000, 300, 0.2, 280, 0.03, 0, 0.3, 20},
                                         Costs{"AttentionHeavy", 5000, 100, 0.1, 20, 0.5}),
                         [](const auto& info) { return info.param.name; });

TEST(StepBudget, HasNoLimitIfNothingStreamsOrItIsOff) {
  StepBudgeter automatic(std::nullopt), off(0);
  EXPECT_EQ(automatic.Next(0).prefill_tokens, StepBudget::kNoLimit);
  EXPECT_EQ(off.Next(8).prefill_tokens, StepBudget::kNoLimit);
  EXPECT_EQ(automatic.Next(8).prefill_tokens, StepBudgeter::kLeastTokens);  // knows nothing yet
}

TEST(StepBudget, AtMostDoublesWhatWasMeasured) {
  StepBudgeter budgeter(std::nullopt);
  for (int i = 0; i < 100; ++i) {
    budgeter.Observe({.num_decoding = 1, .decode_tokens = 1, .prefill_tokens = 20}, 1000);
    budgeter.Observe({.num_decoding = 1, .decode_tokens = 1}, 1000);
  }
  EXPECT_EQ(budgeter.Next(1).prefill_tokens, 40);
}

}  // namespace
}  // namespace pagemill::engine
