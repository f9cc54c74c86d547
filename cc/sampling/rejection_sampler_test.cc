#include "cc/sampling/rejection_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace pagemill::sampling {
namespace {

struct Distribution {
  std::vector<ops::Candidate> kept;  // weights sum to `total`, not to 1
  double total = 0.0;
  ops::KeptTokens view() const { return {.tokens = kept, .total = total}; }
  double Probability(int32_t id) const {
    for (const ops::Candidate& c : kept) {
      if (c.token_id == id) return double{c.logit} / total;
    }
    return 0.0;
  }
};

// The distribution over tokens with a weight above 0.
Distribution Target(const std::vector<float>& weights) {
  Distribution p;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0.0f) continue;
    p.kept.push_back({weights[i], static_cast<int32_t>(i)});
    p.total += double{weights[i]};
  }
  return p;
}

std::vector<float> Normalized(std::vector<float> q) {
  double sum = 0.0;
  for (float x : q) sum += double{x};
  for (float& x : q) x = static_cast<float>(double{x} / sum);
  return q;
}

// The distribution of the token and the probability of acceptance, by integration over q and a
// grid of the two random numbers.
struct Integrated {
  std::vector<double> tokens;
  double accepted = 0.0;
};
Integrated Integrate(const Distribution& p, const std::vector<float>& q) {
  constexpr int kGrid = 200;
  Integrated result{std::vector<double>(q.size())};
  for (size_t d = 0; d < q.size(); ++d) {
    const DrawnDraft draft = {.token_id = static_cast<int32_t>(d), .probabilities = q};
    for (int a = 0; a < kGrid; ++a) {
      for (int r = 0; r < kGrid; ++r) {
        const int32_t token = VerifyDraft(p.view(), draft, {(a + 0.5) / kGrid, (r + 0.5) / kGrid});
        const double weight = double{q[d]} / (kGrid * kGrid);
        result.tokens[token] += weight;
        if (token == draft.token_id) result.accepted += weight;
      }
    }
  }
  return result;
}

TEST(RejectionSamplerTest, TokensAreDistributedAsTheTargetWhateverTheDraftIs) {
  std::mt19937 rng(1);
  std::uniform_real_distribution<float> uniform(0.0f, 3.0f);
  for (int round = 0; round < 12; ++round) {
    std::vector<float> weights(5), q(5);
    for (float& w : weights) w = rng() % 4 == 0 ? 0.0f : uniform(rng);
    weights[rng() % 5] = 2.0f;
    for (float& x : q) x = rng() % 4 == 0 ? 0.0f : uniform(rng);
    q[rng() % 5] = 1.0f;
    q = Normalized(q);
    const Distribution p = Target(weights);
    const Integrated got = Integrate(p, q);
    double overlap = 0.0;
    for (int32_t id = 0; id < 5; ++id) {
      // Each boundary between outcomes is off by at most half a step of the grid of 200.
      EXPECT_NEAR(got.tokens[id], p.Probability(id), 0.01) << round << " " << id;
      overlap += std::min(p.Probability(id), double{q[id]});
    }
    EXPECT_NEAR(got.accepted, overlap, 0.01) << "no rule accepts more";
  }
}

TEST(RejectionSamplerTest, ADraftFromTheTargetItselfIsAlwaysAccepted) {
  const std::vector<float> weights = {0.1f, 0.2f, 0.3f, 0.4f};
  const Distribution p = Target(weights);
  for (int32_t id = 0; id < 4; ++id) {
    for (double u : {0.0, 0.5, 0.999999}) {
      EXPECT_EQ(VerifyDraft(p.view(), {id, Normalized(weights)}, {u, 0.5}), id);
    }
  }
}

TEST(RejectionSamplerTest, AnExcludedDraftIsNeverAccepted) {
  const Distribution p = Target({0.0f, 1.0f, 0.0f, 1.0f});
  const std::vector<float> q = {1.0f, 0.0f, 0.0f, 0.0f};
  EXPECT_EQ(VerifyDraft(p.view(), {0, q}, {0.0, 0.0}), 1);
  EXPECT_EQ(VerifyDraft(p.view(), {0, q}, {0.0, 0.999}), 3);
}

TEST(RejectionSamplerTest, WithoutResidualAnyTokenOfTheTargetIsDrawn) {
  // q is at least p everywhere, which rounding can cause.
  const Distribution p = Target({1.0f, 1.0f, 0.0f});
  const std::vector<float> q = {0.6f, 0.6f, 0.6f};
  EXPECT_EQ(VerifyDraft(p.view(), {2, q}, {0.5, 0.25}), 0);
  EXPECT_EQ(VerifyDraft(p.view(), {2, q}, {0.5, 0.75}), 1);
}

TEST(RejectionSamplerTest, PurposesAndPositionsHaveNumbersOfTheirOwn) {
  std::vector<double> numbers;
  for (int32_t position : {0, 1, 2}) {
    for (Purpose purpose :
         {Purpose::kToken, Purpose::kAcceptance, Purpose::kResidual, Purpose::kDraft}) {
      numbers.push_back(UniformOf(7, position, purpose));
    }
  }
  std::sort(numbers.begin(), numbers.end());
  EXPECT_EQ(std::adjacent_find(numbers.begin(), numbers.end()), numbers.end());
  EXPECT_EQ(UniformOf(7, 5, Purpose::kToken), ops::PhiloxUniform(7, 5)) << "as without drafts";
}

// Verifies a drafter's tokens against a target with another distribution: 10,000 seeds.
TEST(DrawDraftTest, VerifiedDraftsHaveTheDistributionOfTheTarget) {
  const Distribution p = Target({5, 1, 0, 3, 2, 0.5f}), q = Target({1, 4, 2, 3, 0, 1});
  constexpr int32_t kSamples = 10000;
  std::vector<float> probabilities(6, -1.0f);
  std::vector<int32_t> drafted(6), counts(6);
  for (uint64_t seed = 0; seed < kSamples; ++seed) {
    const int32_t draft =
        DrawDraft(q.view(), UniformOf(seed, /*position=*/3, Purpose::kDraft), probabilities);
    ++drafted[draft];
    ++counts[VerifyDraft(p.view(), {.token_id = draft, .probabilities = probabilities},
                         {.acceptance = UniformOf(seed, 3, Purpose::kAcceptance),
                          .residual = UniformOf(seed, 3, Purpose::kResidual)})];
  }
  const auto chi_square = [](const Distribution& expected, const std::vector<int32_t>& counted) {
    double sum = 0.0;
    for (int32_t id = 0; id < 6; ++id) {
      const double mean = expected.Probability(id) * kSamples;
      if (mean == 0.0) {
        EXPECT_EQ(counted[id], 0);
      } else {
        sum += (counted[id] - mean) * (counted[id] - mean) / mean;
      }
    }
    return sum;
  };
  // 4 degrees of freedom; exceeded with probability 0.001, and the seeds are fixed.
  EXPECT_LT(chi_square(q, drafted), 18.5);
  EXPECT_LT(chi_square(p, counts), 18.5);
  for (int32_t id = 0; id < 6; ++id) {
    EXPECT_NEAR(probabilities[id], q.Probability(id), 1e-6);
  }
}

}  // namespace
}  // namespace pagemill::sampling
