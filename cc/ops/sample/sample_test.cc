#include "cc/ops/sample/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/sample/philox.h"
#include "gtest/gtest.h"

namespace pagemill::ops {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(std::mt19937& rng, size_t n, bool coarse) {
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> x(n);
  // Coarse values make equal logits common.
  for (float& v : x) v = coarse ? std::round(normal(rng)) : normal(rng);
  return x;
}

// The passes that this machine can run.
std::vector<const RowPasses*> AllPasses() {
  std::vector<const RowPasses*> all = {&kRowPassesPortable};
#if defined(__x86_64__)
  const device::Capabilities caps = device::DetectCapabilities();
  if (caps.cpu.avx2) all.push_back(&kRowPassesAvx2);
  if (caps.cpu.avx512) all.push_back(&kRowPassesAvx512);
#endif
  return all;
}

class SampleTest : public ::testing::TestWithParam<const RowPasses*> {
 protected:
  const RowPasses& passes() const { return *GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(InstructionSets, SampleTest, ::testing::ValuesIn(AllPasses()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(ChooseRowPasses, TakesTheWidestOfTheMachine) {
  EXPECT_STREQ(ChooseRowPasses({}).name, "portable");
#if defined(__x86_64__)
  EXPECT_STREQ(ChooseRowPasses({.cpu = {.avx2 = true}}).name, "avx2");
  EXPECT_STREQ(ChooseRowPasses({.cpu = {.avx2 = true, .avx512 = true}}).name, "avx512");
#endif
}

TEST(Philox, KnownAnswers) {
  // Random123's published vectors for philox4x32 with 10 rounds.
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(Philox4x32({f, f, f, f}, {f, f}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, UniformIsInRangeAndDependsOnItsArguments) {
  double sum = 0.0;
  for (uint64_t i = 0; i < 10000; ++i) {
    const double u = PhiloxUniform(7, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.015);  // five standard deviations of the mean
  EXPECT_NE(PhiloxUniform(7, 0), PhiloxUniform(8, 0));
  EXPECT_NE(PhiloxUniform(7, 0), PhiloxUniform(7, uint64_t{1} << 32));
  EXPECT_EQ(PhiloxUniform(7, 0), PhiloxUniform(7, 0, /*stream=*/0));
  EXPECT_NE(PhiloxUniform(7, 0), PhiloxUniform(7, 0, 1));
}

TEST_P(SampleTest, ArgMaxEqualsReferenceOnOddSizes) {
  std::mt19937 rng(1);
  for (size_t n : {1, 2, 15, 16, 17, 31, 33, 100, 1021, 49152}) {
    for (bool coarse : {false, true}) {
      const std::vector<float> x = RandomLogits(rng, n, coarse);
      const MaxEntry want = reference::ArgMax(x);
      const MaxEntry got = ArgMax(passes(), x);
      EXPECT_EQ(got.token_id, want.token_id) << n;
      EXPECT_EQ(got.logit, want.logit) << n;
    }
  }
}

TEST_P(SampleTest, ArgMaxRefusesRowsThatAreNotNumbers) {
  const float nan = std::nanf("");
  for (size_t n : {3, 16, 40, 5000}) {
    for (size_t at = 0; at < n; at += n < 100 ? 1 : 331) {
      std::vector<float> x(n, 1.0f);
      x[n / 2] = 2.0f;
      for (float bad : {nan, -nan, kInf}) {
        x[at] = bad;
        EXPECT_EQ(ArgMax(passes(), x).token_id, -1) << n << " " << at << " " << bad;
      }
    }
    EXPECT_EQ(ArgMax(passes(), std::vector<float>(n, -kInf)).token_id, -1);
  }
}

TEST_P(SampleTest, ArgMaxTakesTheLowestOfEqualTokens) {
  std::vector<float> x(5000, -1.0f);
  for (size_t at : {4999, 3000, 1024, 1023, 500, 63, 0}) {
    x[at] = 7.0f;
    EXPECT_EQ(ArgMax(passes(), x).token_id, static_cast<int32_t>(at));
  }
  EXPECT_EQ(ArgMax(passes(), std::vector<float>{-1.0f, -0.0f, 0.0f}).token_id, 1) << "-0 is 0";
}

TEST_P(SampleTest, LogSumExpWithinBoundOfReference) {
  std::mt19937 rng(2);
  for (size_t n : {1, 5, 16, 37, 50257}) {
    std::vector<float> x = RandomLogits(rng, n, false);
    if (n > 5) x[3] = -kInf;  // an excluded token
    const float max = *std::max_element(x.begin(), x.end());
    std::vector<Candidate> storage(n);
    EXPECT_NEAR(LogSumExp(passes(), x, max, storage), reference::LogSumExp(x, max), 2e-6) << n;
  }
}

TEST_P(SampleTest, TopEntriesEqualsReferenceWithTies) {
  std::mt19937 rng(3);
  for (size_t n : {1, 7, 300}) {
    const std::vector<float> x = RandomLogits(rng, n, true);
    for (int32_t count : {0, 1, 5, 299, 1000}) {
      std::vector<Candidate> a(n), b(n);
      const auto got = TopEntries(passes(), x, count, a);
      const auto want = reference::TopEntries(x, count, b);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].token_id, want[i].token_id);
    }
  }
}

TEST_P(SampleTest, RankOfCountsStrictlyLarger) {
  const std::vector<float> x = {1, 3, 3, 2, -kInf};
  EXPECT_EQ(RankOf(passes(), x, 3), 1);
  EXPECT_EQ(RankOf(passes(), x, 2), 3);
  EXPECT_EQ(RankOf(passes(), x, -kInf), 5);
}

TEST_P(SampleTest, DrawTokenEqualsReferenceOverParameters) {
  std::mt19937 rng(4);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  int compared = 0;
  int different = 0;
  for (int round = 0; round < 3000; ++round) {
    const size_t n = 1 + rng() % 700;
    std::vector<float> x = RandomLogits(rng, n, round % 3 == 0);
    if (n > 4 && round % 5 == 0) x[n / 2] = -kInf;
    DrawParams p;
    p.temperature = 0.05f + 2.0f * static_cast<float>(uniform(rng));
    p.min_weight = round % 2 ? 0.0f : 0.3f * static_cast<float>(uniform(rng));
    p.top_k = round % 3 ? 0 : static_cast<int32_t>(rng() % 80);
    p.top_p = round % 4 ? 1.0f : 0.05f + 0.95f * static_cast<float>(uniform(rng));
    p.uniform = uniform(rng);
    const MaxEntry max = ArgMax(passes(), x);
    std::vector<Candidate> a(n), b(n);
    const int32_t got = DrawToken(passes(), x, max, p, a);
    ++compared;
    if (got != reference::DrawToken(x, max, p, b)) ++different;
    EXPECT_GT(x[got], -kInf);
  }
  // The contract allows a difference if a boundary is within 1e-6: about 1e-6 * 700 per draw.
  EXPECT_LE(different, compared / 500);
}

TEST_P(SampleTest, KeptTokensAreThoseThatAreDrawn) {
  std::mt19937 rng(7);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  int different = 0;
  const int rounds = 1000;
  for (int round = 0; round < rounds; ++round) {
    const size_t n = 1 + rng() % 300;
    std::vector<float> x = RandomLogits(rng, n, round % 3 == 0);
    if (n > 4) x[n / 2] = -kInf;
    DrawParams p;
    p.temperature = 0.05f + 2.0f * static_cast<float>(uniform(rng));
    p.min_weight = round % 2 ? 0.0f : 0.3f * static_cast<float>(uniform(rng));
    p.top_k = round % 3 ? 0 : static_cast<int32_t>(rng() % 80);
    p.top_p = round % 4 ? 1.0f : 0.05f + 0.95f * static_cast<float>(uniform(rng));
    p.uniform = uniform(rng);
    const MaxEntry max = ArgMax(passes(), x);
    std::vector<Candidate> a(n), b(n);
    const KeptTokens kept = WeighKept(passes(), x, max, p, a);
    double total = 0.0, sum = 0.0;
    int32_t last = -1, drawn = -1;
    for (const Candidate& token : kept.tokens) {
      ASSERT_GT(token.token_id, last) << "the order of ids";
      last = token.token_id;
      ASSERT_GT(x[last], -kInf);
      const double weight = std::exp((double{x[last]} - double{max.logit}) / double{p.temperature});
      EXPECT_NEAR(token.logit, weight, 1e-5 * weight + 1e-30);
      total += double{token.logit};
      sum += double{token.logit};
      if (drawn < 0 && sum > p.uniform * kept.total) drawn = last;
    }
    EXPECT_DOUBLE_EQ(total, kept.total);
    different += drawn != DrawToken(passes(), x, max, p, b) ? 1 : 0;
  }
  EXPECT_LE(different, rounds / 500);  // boundaries, as above
}

TEST_P(SampleTest, DrawTokenFrequenciesFollowTheDistribution) {
  const std::vector<float> x = {0.0f, 1.0f, 2.0f, -kInf, 0.5f};
  const MaxEntry max = ArgMax(passes(), x);
  std::map<int32_t, int> counts;
  const int draws = 200000;
  std::vector<Candidate> storage(x.size());
  for (int i = 0; i < draws; ++i) {
    DrawParams p;
    p.temperature = 0.7f;
    p.uniform = PhiloxUniform(42, static_cast<uint64_t>(i));
    ++counts[DrawToken(passes(), x, max, p, storage)];
  }
  double total = 0.0;
  for (float v : x) total += std::exp(v / 0.7);
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(x[i] / 0.7) / total;
    const double sigma = std::sqrt(want * (1 - want) / draws);
    EXPECT_NEAR(counts[static_cast<int32_t>(i)] / double{draws}, want, 5 * sigma + 1e-9) << i;
  }
}

TEST_P(SampleTest, DrawTokenNeverPicksExcludedTokens) {
  std::mt19937 rng(5);
  std::vector<float> x = RandomLogits(rng, 300, false);
  std::fill(x.begin(), x.begin() + 100, -kInf);
  std::fill(x.end() - 70, x.end(), -kInf);
  const MaxEntry max = ArgMax(passes(), x);
  std::vector<Candidate> storage(x.size());
  const DrawParams limits[] = {{}, {.min_weight = 1e-9f}, {.top_k = 250}, {.top_p = 0.99999f}};
  for (DrawParams p : limits) {
    for (double u : {0.0, 0.5, 1.0 - 1e-16}) {
      p.uniform = u;
      EXPECT_GT(x[DrawToken(passes(), x, max, p, storage)], -kInf) << p.top_k << " " << u;
    }
  }
}

TEST_P(SampleTest, DrawTokenEqualsReferenceOnAWholeVocabulary) {
  std::mt19937 rng(6);
  const std::vector<float> x = RandomLogits(rng, 49152, false);
  const MaxEntry max = ArgMax(passes(), x);
  std::vector<Candidate> a(x.size()), b(x.size());
  int different = 0;
  const DrawParams limits[] = {{}, {.top_p = 0.95f}, {.top_k = 1000, .top_p = 0.9f}, {.top_k = 40}};
  for (DrawParams p : limits) {
    for (double u : {0.01, 0.4, 0.97}) {
      p.uniform = u;
      different += DrawToken(passes(), x, max, p, a) != reference::DrawToken(x, max, p, b) ? 1 : 0;
    }
  }
  EXPECT_LE(different, 1);  // a boundary within 1e-6 of one of 12 numbers, among 49,152
}

TEST_P(SampleTest, DrawTokenExtremesPickTheMostLikely) {
  const std::vector<float> x = {-1.0f, 5.0f, 4.9f, 5.0f};
  const MaxEntry max = ArgMax(passes(), x);
  std::vector<Candidate> storage(x.size());
  for (double u : {0.0, 0.5, 0.999999}) {
    DrawParams p;
    p.uniform = u;
    p.top_p = 1e-6f;
    EXPECT_EQ(DrawToken(passes(), x, max, p, storage), 1);
    p = {};
    p.uniform = u;
    p.top_k = 1;  // ties with the k-th are kept: both maxima
    const int32_t id = DrawToken(passes(), x, max, p, storage);
    EXPECT_TRUE(id == 1 || id == 3) << id;
    p = {};
    p.uniform = u;
    p.min_weight = 1.0f;
    const int32_t id2 = DrawToken(passes(), x, max, p, storage);
    EXPECT_TRUE(id2 == 1 || id2 == 3) << id2;
  }
}

}  // namespace
}  // namespace pagemill::ops
