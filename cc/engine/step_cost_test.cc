#include "cc/engine/step_cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

#include "gtest/gtest.h"

namespace pagemill::engine {
namespace {

constexpr StepWork kDecode{.num_decoding = 16, .decode_tokens = 16, .decode_context = 16 * 256};

StepWork Mixed(int64_t prefill_tokens) {
  StepWork work = kDecode;
  work.prefill_tokens = prefill_tokens;
  work.prefill_context = prefill_tokens * 512;
  return work;
}

// A machine whose steps cost what `cost` says, with noise, and now and then stall.
class Machine {
 public:
  Machine(double noise, double stall_every) : noise_(noise), stall_every_(stall_every) {}

  int64_t Run(const StepWork& work) {
    double us = 3000 + 250.0 * static_cast<double>(work.decode_tokens) +
                0.25 * static_cast<double>(work.decode_context) +
                300.0 * static_cast<double>(work.prefill_tokens) +
                0.05 * static_cast<double>(work.prefill_context);
    exact_ = us * factor_;
    us = exact_ * (1 + noise_ * (Uniform() - 0.5) * 2);
    if (stall_every_ > 0 && Uniform() * stall_every_ < 1) us *= 30;
    return static_cast<int64_t>(us);
  }
  double exact() const { return exact_; }  // of the last step
  void Slow(double factor) { factor_ *= factor; }
  // From 0 to 1, the same on every machine.
  double Uniform() { return static_cast<double>(random_()) / 4294967296.0; }

 private:
  const double noise_, stall_every_;
  double factor_ = 1, exact_ = 0;
  std::mt19937 random_{7};
};

// Runs random steps, and returns the largest relative error after the first `num_first`.
double WorstError(int num_steps, int num_first, Machine* machine, StepCost* cost) {
  double worst = 0;
  for (int i = 0; i < num_steps; ++i) {
    StepWork work = Mixed(machine->Uniform() < 0.5 ? 0 : std::lround(machine->Uniform() * 128));
    work.decode_tokens = 1 + static_cast<int64_t>(machine->Uniform() * 31);
    work.decode_context = work.decode_tokens * 300;
    const int64_t us = machine->Run(work);
    if (i >= num_first) {
      worst = std::max(worst, std::abs(cost->Micros(work) / machine->exact() - 1));
    }
    cost->Observe(work, us);
  }
  return worst;
}

TEST(StepCost, KnowsNothingBeforeTheFirstStep) {
  StepCost cost;
  EXPECT_FALSE(cost.known());
  EXPECT_EQ(cost.Micros(kDecode), 0);
  cost.Observe(kDecode, 0);
  EXPECT_FALSE(cost.known());
  cost.Observe(kDecode, 9000);
  EXPECT_NEAR(cost.Micros(kDecode), 9000, 500);
}

TEST(StepCost, ConvergesWithoutNoise) {
  Machine machine(0, 0);
  StepCost cost;
  EXPECT_LT(WorstError(2000, 1000, &machine, &cost), 0.1);
}

TEST(StepCost, ConvergesWithNoiseAndStalls) {
  Machine machine(0.2, 50);
  StepCost cost;
  EXPECT_LT(WorstError(5000, 200, &machine, &cost), 0.35);
}

TEST(StepCost, FollowsAMachineThatChangesForGood) {
  Machine machine(0.1, 0);
  StepCost cost;
  WorstError(300, 300, &machine, &cost);
  for (double factor : {8.0, 1 / 16.0}) {
    machine.Slow(factor);
    EXPECT_LT(WorstError(300, 150, &machine, &cost), 0.4) << factor;
  }
}

TEST(StepCost, ForgetsAFirstStepThatWasMuchTooSlow) {
  Machine machine(0.1, 0);
  StepCost cost;
  cost.Observe(Mixed(128), 10'000'000);
  EXPECT_LT(WorstError(300, 150, &machine, &cost), 0.4);
}

TEST(StepCost, OneStallMovesTheEstimateLittle) {
  Machine machine(0.05, 0);
  StepCost cost;
  WorstError(500, 500, &machine, &cost);
  const double before = cost.Micros(Mixed(64));
  cost.Observe(Mixed(64), 10'000'000);
  EXPECT_NEAR(cost.Micros(Mixed(64)) / before, 1, 0.2);
}

// A long time without prompts must not make the next one, whatever it took, the only one that
// counts.
TEST(StepCost, KeepsWhatRecentStepsDoNotShow) {
  Machine machine(0.1, 0);
  StepCost cost;
  WorstError(500, 500, &machine, &cost);
  for (int i = 0; i < 20000; ++i) cost.Observe(kDecode, machine.Run(kDecode));
  machine.Run(Mixed(64));
  EXPECT_NEAR(cost.Micros(Mixed(64)) / machine.exact(), 1, 0.25);
  cost.Observe(Mixed(64), static_cast<int64_t>(20 * machine.exact()));
  EXPECT_LT(cost.Micros(Mixed(64)) / machine.exact(), 2);
}

TEST(StepCost, CountsThePlansWork) {
  step::StepPlan plan;
  plan.scheduled.resize(3);
  plan.scheduled[0].num_computed_tokens = 10;
  plan.scheduled[0].token_ids = {1};
  plan.scheduled[0].draft_token_ids = {2, 3};
  plan.scheduled[1].num_computed_tokens = 4;
  plan.scheduled[1].token_ids = {1, 2, 3};
  plan.scheduled[2].num_computed_tokens = 7;
  plan.scheduled[2].token_ids = {step::kPlaceholderTokenId};
  const StepWork work = StepWork::Of(plan);
  EXPECT_EQ(work.num_decoding, 2);
  EXPECT_EQ(work.decode_tokens, 4);
  EXPECT_EQ(work.decode_context, 13 + 8);
  EXPECT_EQ(work.prefill_tokens, 3);
  EXPECT_EQ(work.prefill_context, 5 + 6 + 7);
  EXPECT_EQ(work.longest_prefill, 7);
}

}  // namespace
}  // namespace pagemill::engine
