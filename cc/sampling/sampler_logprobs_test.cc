// What is reported of tokens: SamplingParams::logprobs_mode and logprob_token_ids.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/sampling/sampler.h"
#include "cc/step/token_mask.h"
#include "gtest/gtest.h"

namespace pagemill::sampling {
namespace {

using step::RequestIndex;
using step::SamplingParams;

constexpr int32_t kVocab = 90;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr RequestIndex kSlot{0};

std::vector<float> RandomRow() {
  std::mt19937 rng(17);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> row(kVocab);
  for (float& x : row) x = normal(rng);
  return row;
}

double LogSumExp(const std::vector<float>& row) {
  double sum = 0.0;
  for (const float x : row) sum += std::exp(double{x});
  return std::log(sum);
}

SamplingParams Params(int32_t mode, float temperature = 0.0f) {
  SamplingParams params;
  params.temperature = temperature;
  params.seed = 3;
  params.logprobs = SamplingParams::kAllLogprobs;
  params.logprobs_mode = mode;
  return params;
}

class SamplerLogprobsTest : public testing::Test {
 protected:
  SamplerLogprobsTest()
      : pool_({.num_threads = 1}), sampler_({.max_num_seqs = 1, .vocab_size = kVocab}, &pool_) {}

  RowOutput Run(const SamplingParams& params, int32_t prompt_token = -1,
                const std::vector<uint32_t>& mask = {}) {
    auto request = std::make_shared<step::Request>();
    request->prompt_token_ids = {1, 2};
    request->sampling = params;
    sampler_.Start(kSlot, request, {}, /*masked=*/!mask.empty());
    const LogitsRow row = {
        .index = kSlot, .logits = row_.data(), .prompt_token_id = prompt_token, .mask = mask};
    RowOutput output;
    sampler_.Run({&row, 1}, {&output, 1});
    EXPECT_TRUE(output.failure.ok()) << output.failure.ToString();
    return output;
  }

  // The value of each token of `expected`, of which all are in `output`, and its token's rank.
  void ExpectValues(const RowOutput& output, const std::vector<float>& expected) {
    ASSERT_TRUE(output.has_logprobs);
    ASSERT_EQ(output.logprobs.top.size(), static_cast<size_t>(kVocab));
    EXPECT_EQ(output.logprobs.token_id, output.token_id);
    float last = kInfinity;
    for (const auto& [id, value] : output.logprobs.top) {
      EXPECT_LE(value, last);
      last = value;
      if (expected[id] == -kInfinity) {
        EXPECT_EQ(value, -kInfinity) << id;
      } else {
        EXPECT_NEAR(value, expected[id], 1e-4) << id;
      }
    }
    const float own = expected[output.token_id];
    EXPECT_NEAR(output.logprobs.logprob, own, 1e-4);
    EXPECT_EQ(output.logprobs.rank,
              1 + std::ranges::count_if(expected, [&](float x) { return x > own; }));
  }

  device::ThreadPool pool_;
  Sampler sampler_;
  const std::vector<float> row_ = RandomRow();
};

TEST_F(SamplerLogprobsTest, RawLogitsAreTheRow) {
  SamplingParams params = Params(SamplingParams::kRawLogits, 0.7f);
  params.logit_bias = {{4, 9.0f}};
  params.top_k = 2;
  ExpectValues(Run(params), row_);
}

TEST_F(SamplerLogprobsTest, ProcessedOnesAreOfWhatATokenIsDrawnFrom) {
  SamplingParams params = Params(SamplingParams::kProcessedLogits, 0.5f);
  params.logit_bias = {{4, 3.0f}};
  params.frequency_penalty = 1.0f;
  params.top_k = 5;
  std::vector<float> processed = row_;
  processed[4] += 3.0f;
  std::vector<float> sorted = processed;
  std::ranges::sort(sorted, std::greater<>());
  for (float& x : processed) x = x >= sorted[4] ? x / 0.5f : -kInfinity;
  ExpectValues(Run(params), processed);

  params.logprobs_mode = SamplingParams::kProcessedLogprobs;
  const double lse = LogSumExp(processed);
  for (float& x : processed) x = static_cast<float>(x - lse);
  ExpectValues(Run(params), processed);
}

TEST_F(SamplerLogprobsTest, AGreedyRequestHasNeitherTemperatureNorTopK) {
  SamplingParams params = Params(SamplingParams::kProcessedLogprobs);
  params.logit_bias = {{4, 3.0f}};
  params.top_k = 2;
  std::vector<float> processed = row_;
  processed[4] += 3.0f;
  const double lse = LogSumExp(processed);
  for (float& x : processed) x = static_cast<float>(x - lse);
  ExpectValues(Run(params), processed);
}

TEST_F(SamplerLogprobsTest, ProcessedOnesExcludeWhatAMaskExcludes) {
  std::vector<uint32_t> mask(step::NumMaskWords(kVocab));
  mask[0] = 0b101100;
  std::vector<float> processed(kVocab, -kInfinity);
  for (const size_t id : {2, 3, 5}) processed[id] = row_[id] / 2.0f;
  ExpectValues(Run(Params(SamplingParams::kProcessedLogits, 2.0f), -1, mask), processed);
  std::vector<float> raw = row_;
  const double lse = LogSumExp(raw);
  for (float& x : raw) x = static_cast<float>(x - lse);
  ExpectValues(Run(Params(SamplingParams::kRawLogprobs, 2.0f), -1, mask), raw);
}

TEST_F(SamplerLogprobsTest, TokensDoNotDependOnTheMode) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SamplingParams params = Params(SamplingParams::kRawLogprobs, 1.3f);
    params.seed = seed;
    params.top_p = 0.9f;
    const int32_t token_id = Run(params).token_id;
    params.logprobs_mode = SamplingParams::kProcessedLogprobs;
    EXPECT_EQ(Run(params).token_id, token_id);
  }
}

TEST_F(SamplerLogprobsTest, ChosenTokensTakeThePlaceOfTheMostLikely) {
  const double lse = LogSumExp(row_);
  for (const bool logits : {false, true}) {
    SamplingParams params =
        Params(logits ? SamplingParams::kRawLogits : SamplingParams::kRawLogprobs);
    params.logprobs = 0;
    params.logprob_token_ids = {60, 3, 8};
    const RowOutput output = Run(params);
    ASSERT_EQ(output.logprobs.top.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      const auto& [id, value] = output.logprobs.top[i];
      EXPECT_EQ(id, params.logprob_token_ids[i]);
      EXPECT_NEAR(value, row_[id] - (logits ? 0.0 : lse), 1e-4);
    }
    EXPECT_EQ(output.logprobs.rank, 1);
  }
}

TEST_F(SamplerLogprobsTest, PromptTokensAreNotProcessedAndHaveTheMostLikely) {
  SamplingParams params = Params(SamplingParams::kProcessedLogits, 0.5f);
  params.prompt_logprobs = 2;
  params.logprobs = 0;
  params.logprob_token_ids = {60};
  params.top_k = 1;
  RowOutput output = Run(params, /*prompt_token=*/9);
  EXPECT_EQ(output.logprobs.logprob, row_[9]);
  ASSERT_EQ(output.logprobs.top.size(), 2u);
  EXPECT_EQ(output.logprobs.top[0].second, *std::ranges::max_element(row_));
  params.logprobs_mode = SamplingParams::kProcessedLogprobs;
  output = Run(params, /*prompt_token=*/9);
  EXPECT_NEAR(output.logprobs.logprob, row_[9] - LogSumExp(row_), 1e-4);
}

TEST_F(SamplerLogprobsTest, AnExecutorGivesFewRawOnes) {
  const auto suffice = [&](const auto& change, bool of_prompt) {
    SamplingParams params;
    params.logprobs = params.prompt_logprobs = 4;
    change(params);
    if (!of_prompt) {
      (void)Run(params);
      EXPECT_EQ(sampler_.NeedsOnlyAdjustedToken(kSlot), ScoresSuffice(params, false));
    }
    return ScoresSuffice(params, of_prompt);
  };
  for (const bool of_prompt : {false, true}) {
    EXPECT_TRUE(suffice([](SamplingParams&) {}, of_prompt));
    EXPECT_FALSE(
        suffice([](SamplingParams& p) { p.logprobs = p.prompt_logprobs = 21; }, of_prompt));
    EXPECT_FALSE(suffice([](SamplingParams& p) { p.logprobs_mode = SamplingParams::kRawLogits; },
                         of_prompt));
    EXPECT_EQ(
        suffice([](SamplingParams& p) { p.logprobs_mode = SamplingParams::kProcessedLogprobs; },
                of_prompt),
        of_prompt);
    EXPECT_EQ(
        suffice([](SamplingParams& p) { p.logprobs = 0, p.logprob_token_ids = {1}; }, of_prompt),
        of_prompt);
  }
  EXPECT_TRUE(suffice(
      [](SamplingParams& p) {
        p.logprobs = SamplingParams::kNoLogprobs;
        p.logprobs_mode = SamplingParams::kProcessedLogits;
      },
      false));
}

}  // namespace
}  // namespace pagemill::sampling
