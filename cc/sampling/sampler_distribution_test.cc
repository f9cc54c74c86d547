// The distribution of sampled tokens, with drafts and without, against one computed from
// docs/sampling.md with full sorts and in double: chi-square over 10,000 seeded samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/sampling/sampler.h"
#include "cc/sampling/testing/hash_model.h"
#include "cc/step/token_mask.h"

namespace pagemill::sampling {
namespace {

using step::SamplingParams;
using Text = std::vector<int32_t>;

constexpr int32_t kVocab = 6;
constexpr int kSamples = 10000;
constexpr size_t kTokens = 3;  // per sample: 216 outcomes
const Text kPrompt = {1, 2};

// Logits after the steps that change them; -inf = excluded.
std::vector<double> ProcessedLogits(const HashModel& model, const SamplingParams& p, bool masked,
                                    const Text& outputs) {
  Text text = kPrompt;
  text.insert(text.end(), outputs.begin(), outputs.end());
  const std::vector<float> raw = model.Logits(text);
  std::vector<double> x(raw.begin(), raw.end());
  const std::vector<uint32_t> mask = model.Mask(text);
  for (int32_t id = 0; id < kVocab; ++id) {
    if (masked && !step::AllowsToken(mask, id)) x[id] = -INFINITY;
    if (static_cast<int32_t>(outputs.size()) < p.min_tokens && id == p.eos_token_ids[0]) {
      x[id] = -INFINITY;
    }
    for (const auto& [biased, bias] : p.logit_bias) x[id] += biased == id ? double{bias} : 0.0;
    const auto count = static_cast<double>(std::count(outputs.begin(), outputs.end(), id));
    if (std::count(text.begin(), text.end(), id) > 0) {
      x[id] *= x[id] > 0.0 ? 1.0 / p.repetition_penalty : p.repetition_penalty;
    }
    if (count > 0) x[id] -= p.frequency_penalty * count + p.presence_penalty;
  }
  return x;
}

std::vector<double> NextToken(const HashModel& model, const SamplingParams& p, bool masked,
                              const Text& outputs) {
  const std::vector<double> x = ProcessedLogits(model, p, masked, outputs);
  Text order(kVocab);
  for (int32_t id = 0; id < kVocab; ++id) order[id] = id;
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return x[a] > x[b]; });
  std::vector<double> probabilities(kVocab, 0.0);
  double total = 0.0;
  for (int32_t rank = 0; rank < kVocab; ++rank) {
    const double weight = std::exp((x[order[rank]] - x[order[0]]) / p.temperature);
    if (weight < p.min_p || (p.top_k > 0 && rank >= p.top_k)) break;
    total += probabilities[order[rank]] = weight;
  }
  double sum = 0.0, kept = 0.0;
  for (int32_t id : order) {
    const double weight = probabilities[id];
    if (sum >= p.top_p * total) probabilities[id] = 0.0;
    sum += weight;
    kept += probabilities[id];
  }
  for (double& probability : probabilities) probability /= kept;
  return probabilities;
}

// Adds the probabilities of all texts of kTokens tokens.
void AddExpected(const HashModel& model, const SamplingParams& p, bool masked, const Text& outputs,
                 double probability, std::map<Text, double>* expected) {
  if (probability == 0.0) return;
  if (outputs.size() == kTokens) {
    (*expected)[outputs] = probability;
    return;
  }
  const std::vector<double> next = NextToken(model, p, masked, outputs);
  for (int32_t id = 0; id < kVocab; ++id) {
    Text longer = outputs;
    longer.push_back(id);
    AddExpected(model, p, masked, longer, probability * next[id], expected);
  }
}

struct ChiSquare {
  double statistic = 0.0;
  int degrees = -1;
  // With many degrees of freedom the statistic is nearly normal with mean `degrees` and twice that
  // as variance; 5 deviations, plus 5 for few degrees, are exceeded about once in a million.
  double bound() const { return degrees + 5.0 * std::sqrt(2.0 * degrees) + 5.0; }
};

// Outcomes that are expected fewer than 5 times are merged.
ChiSquare Compare(const std::map<Text, double>& expected, const std::map<Text, int>& counts) {
  ChiSquare result;
  double rare_expected = 0.0, rare_count = 0.0;
  const auto add = [&](double count, double mean) {
    result.statistic += (count - mean) * (count - mean) / mean;
    ++result.degrees;
  };
  for (const auto& [text, probability] : expected) {
    const auto found = counts.find(text);
    const double count = found == counts.end() ? 0.0 : found->second;
    if (probability * kSamples >= 5.0) {
      add(count, probability * kSamples);
    } else {
      rare_expected += probability * kSamples;
      rare_count += count;
    }
  }
  if (rare_expected >= 5.0) add(rare_count, rare_expected);
  return result;
}

struct Case {
  std::string name;
  SamplingParams params;
  bool masked = false;
};

std::vector<Case> Cases() {
  std::vector<Case> cases(6);
  cases[0].name = "plain";
  cases[1].name = "temperature_top_p";
  cases[1].params.temperature = 0.7f;
  cases[1].params.top_p = 0.8f;
  cases[2].name = "top_k";
  cases[2].params.top_k = 3;
  cases[3].name = "penalties_bias";
  cases[3].params.presence_penalty = 1.0f;
  cases[3].params.frequency_penalty = 0.5f;
  cases[3].params.repetition_penalty = 1.4f;
  cases[3].params.logit_bias = {{4, 0.8f}};
  cases[4].name = "mask_min_p";
  cases[4].masked = true;
  cases[4].params.min_p = 0.15f;
  cases[5].name = "min_tokens";
  cases[5].params.min_tokens = 2;
  for (Case& c : cases) c.params.eos_token_ids = {5};
  return cases;
}

struct Sampled {
  std::map<Text, int> counts;
  int32_t drafts = 0;
  int32_t accepted = 0;
};

Sampled Sample(const Case& c, const HashModel& model, GenerateOptions options) {
  options.num_tokens = static_cast<int32_t>(kTokens);
  options.masked = c.masked;
  device::ThreadPool pool({.num_threads = 1});
  Sampler sampler({.max_num_seqs = kSamples, .vocab_size = kVocab}, &pool);
  Generations generations(&sampler, &model, options);
  for (int i = 0; i < kSamples; ++i) {
    auto request = std::make_shared<step::Request>();
    request->prompt_token_ids = kPrompt;
    request->sampling = c.params;
    request->sampling.seed = static_cast<uint64_t>(i);
    generations.Add(std::move(request));
  }
  generations.Run();
  Sampled sampled;
  for (const Generations::Generation& g : generations.all()) {
    ++sampled.counts[g.outputs];
    sampled.drafts += g.drafts;
    sampled.accepted += g.accepted;
  }
  return sampled;
}

class SamplerDistributionTest : public testing::TestWithParam<Case> {
 protected:
  void Check(float draft_noise, const GenerateOptions& options) {
    const HashModel model({.vocab_size = kVocab, .draft_noise = draft_noise});
    std::map<Text, double> expected;
    AddExpected(model, GetParam().params, GetParam().masked, {}, 1.0, &expected);
    const Sampled sampled = Sample(GetParam(), model, options);
    for (const auto& [text, count] : sampled.counts) {
      ASSERT_TRUE(expected.contains(text)) << "an excluded token was sampled";
    }
    const ChiSquare chi_square = Compare(expected, sampled.counts);
    EXPECT_LT(chi_square.statistic, chi_square.bound())
        << chi_square.degrees << " degrees of freedom, " << options.max_drafts << " drafts";
    if (options.max_drafts == 0) return;
    EXPECT_GT(sampled.accepted, sampled.drafts / 20);
    EXPECT_LT(sampled.accepted, sampled.drafts);
  }
};

INSTANTIATE_TEST_SUITE_P(Parameters, SamplerDistributionTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(SamplerDistributionTest, WithoutDrafts) { Check(0.0f, {}); }

TEST_P(SamplerDistributionTest, WithMostLikelyDrafts) {
  Check(1.0f, {.max_drafts = 3, .fixed_drafts = true});
}

TEST_P(SamplerDistributionTest, WithGoodDrawnDrafts) {
  for (int32_t length : {1, 3}) {
    Check(0.5f, {.max_drafts = length, .fixed_drafts = true, .drawn = true});
  }
}

TEST_P(SamplerDistributionTest, WithBadDrawnDrafts) {
  for (int32_t length : {1, 3}) {
    Check(6.0f, {.max_drafts = length, .fixed_drafts = true, .drawn = true});
  }
}

// Checks the test itself: nearby distributions are far beyond the bound.
TEST(ChiSquareTest, SeesADistributionThatIsNearlyRight) {
  const HashModel model({.vocab_size = kVocab});
  const Case plain = Cases()[0];
  SamplingParams warmer = plain.params;
  warmer.temperature = 1.15f;
  std::map<Text, double> expected;
  AddExpected(model, warmer, false, {}, 1.0, &expected);
  const ChiSquare chi_square = Compare(expected, Sample(plain, model, {}).counts);
  EXPECT_GT(chi_square.statistic, chi_square.bound());
}

}  // namespace
}  // namespace pagemill::sampling
