#include "cc/sampling/draft_length.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace pagemill::sampling {
namespace {

// A step with k drafts costs 1 + k * per_draft: an n-gram's drafts on a CPU (0.03 to 0.1), a busy
// batch (0.3), a draft model of half the size (0.5).
std::vector<double> Costs(double per_draft) {
  std::vector<double> costs;
  for (int k = 0; k <= 8; ++k) costs.push_back(1.0 + per_draft * k);
  return costs;
}

struct Spent {
  double time = 0.0;
  double tokens = 0.0;
  double speed() const { return tokens / time; }
};

class Simulation {
 public:
  Simulation(double per_draft, uint32_t seed) : costs_(Costs(per_draft)), rng_(seed) {}

  // Runs steps on text whose drafts are accepted with this probability.
  Spent Run(double acceptance, int steps) {
    Spent spent;
    for (int i = 0; i < steps; ++i) {
      const int32_t drafts = length_.Next(costs_);
      int32_t accepted = 0;
      while (accepted < drafts && rng_() * 0x1.0p-32 < acceptance) ++accepted;
      length_.Observe(costs_, drafts, accepted);
      length_.CheckIntegrity();
      spent.time += costs_[drafts];
      spent.tokens += accepted + 1;
    }
    return spent;
  }

 private:
  std::vector<double> costs_;
  std::mt19937 rng_;
  DraftLength length_;
};

// Tokens per time of the best constant length.
double BestSpeed(double per_draft, double acceptance) {
  double best = 0.0, tokens = 0.0, all = 1.0;
  for (double cost : Costs(per_draft)) {
    tokens += all;
    all *= acceptance;
    best = std::max(best, tokens / cost);
  }
  return best;
}

class DraftLengthTest : public testing::TestWithParam<double> {};

INSTANTIATE_TEST_SUITE_P(PerDraft, DraftLengthTest, testing::Values(0.03, 0.1, 0.3, 0.5, 0.8),
                         [](const auto& info) {
                           return std::to_string(static_cast<int>(info.param * 100)) + "_percent";
                         });

TEST_P(DraftLengthTest, TextThatCannotBeGuessedCostsAtMost5Percent) {
  Simulation simulation(GetParam(), 1);
  const Spent first = simulation.Run(0.0, 100);
  EXPECT_LE(first.time, 1.05 * first.tokens);
  const Spent rest = simulation.Run(0.0, 9900);
  EXPECT_LE(first.time + rest.time, 1.05 * (first.tokens + rest.tokens));
  EXPECT_LE(rest.time, 1.013 * rest.tokens) << "a trial of 1.8 in 65 steps at most";
}

TEST_P(DraftLengthTest, TextThatIsGuessedWellIsNearlyAsFastAsWithTheBestLength) {
  for (double acceptance : {0.7, 0.9, 0.97}) {
    const double speed = Simulation(GetParam(), 2).Run(acceptance, 5000).speed();
    EXPECT_GE(speed, 0.95 * BestSpeed(GetParam(), acceptance)) << acceptance;
  }
}

TEST_P(DraftLengthTest, MiddlingTextIsNotMuchSlowerEither) {
  for (double acceptance : {0.1, 0.3, 0.5}) {
    const double speed = Simulation(GetParam(), 3).Run(acceptance, 5000).speed();
    EXPECT_GE(speed, 0.95 * BestSpeed(GetParam(), acceptance)) << acceptance;
  }
}

TEST_P(DraftLengthTest, ItFollowsAChangeOfText) {
  for (uint32_t seed = 0; seed < 5; ++seed) {
    Simulation simulation(GetParam(), seed);
    (void)simulation.Run(0.9, 2000);
    const Spent bad = simulation.Run(0.0, 1000);
    EXPECT_LE(bad.time, 1.05 * bad.tokens) << "though it was good before";
    (void)simulation.Run(0.9, 200);
    const double speed = simulation.Run(0.9, 2000).speed();
    EXPECT_GE(speed, 0.95 * BestSpeed(GetParam(), 0.9)) << "though it was bad before";
  }
}

TEST_P(DraftLengthTest, NoTextWhateverExceedsTheBound) {
  const DraftLengthOptions options;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 rng(seed);
    DraftLength length;
    double time = 0.0, tokens = 0.0, worst = 0.0;  // maximum of time - (1 + overhead) * tokens
    double least = 0.0;
    for (int i = 0; i < 2000; ++i) {
      // Costs that differ between steps, fewer drafts than requested, and text whose drafts are
      // rejected just when many are tried.
      const std::vector<double> costs = Costs(GetParam() * (1 + rng() % 3));
      int32_t drafts = length.Next(costs);
      if (rng() % 8 == 0) drafts = static_cast<int32_t>(rng() % (drafts + 1));
      const int32_t accepted = drafts > 1 && rng() % 2 == 0 ? 0 : drafts;
      length.Observe(costs, drafts, accepted);
      length.CheckIntegrity();
      time += costs[drafts];
      tokens += accepted + 1;
      const double debt = time - (1.0 + options.max_overhead) * tokens;
      least = std::min(least, debt);
      worst = std::max(worst, debt - least);
      ASSERT_LE(debt, options.first_credit_steps + 1e-9);
    }
    EXPECT_LE(worst, options.max_credit_steps + 1e-9) << "from any token on";
  }
}

TEST(DraftLengthTest, CostsDecideTheLength) {
  DraftLength length;
  EXPECT_EQ(length.Next(std::vector<double>{2.0}), 0) << "no drafts in the table";
  EXPECT_EQ(length.Next(std::vector<double>{2.0, 2.0, 2.0}), 2) << "free drafts";
  EXPECT_EQ(length.Next(std::vector<double>{2.0, 3.2}), 0) << "1.5 tokens for 1.6 steps";
  EXPECT_EQ(length.Next(std::vector<double>{2.0, 2.8}), 1);
  EXPECT_EQ(length.Next(std::vector<double>{2.0, 9.0, 2.0}), 2) << "what cannot be afforded is out";
}

TEST(DraftLengthTest, StepsWithoutProposalsSayNothingAboutAcceptance) {
  DraftLength length;
  const std::vector<double> costs = Costs(0.1);
  length.Observe(costs, 2, 2);
  const double before = length.acceptance();
  for (int i = 0; i < 1000; ++i) length.Observe(costs, 0, 0);
  EXPECT_EQ(length.acceptance(), before);
  EXPECT_GT(length.Next(costs), 0);
}

}  // namespace
}  // namespace pagemill::sampling
