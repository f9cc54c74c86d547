#include "cc/sampling/watermark/watermark.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "cc/ops/sample/sample.h"

namespace pagemill::sampling {
namespace {

constexpr uint64_t kKey = 0x1234'5678'9ABC'DEF0;

TEST(WatermarkTest, ContextsAreTheLastTokensAndTheKey) {
  const Watermark watermark({.key = kKey, .context_tokens = 3}), other({.key = kKey + 1});
  EXPECT_FALSE(watermark.HasContext(2));
  const std::vector<int32_t> text = {9, 1, 2, 3}, same = {7, 7, 1, 2, 3}, swapped = {9, 2, 1, 3};
  const uint64_t context = watermark.ContextOf(text);
  EXPECT_EQ(watermark.ContextOf(same), context);
  EXPECT_NE(watermark.ContextOf(swapped), context);
  EXPECT_NE(other.ContextOf(text), context);
  EXPECT_NE(watermark.NumberOf(context, 5), other.NumberOf(context, 5));
  // Marks of texts that exist are found by these values, computed in Python.
  EXPECT_EQ(context, 7'811'949'649'860'301'218u);
  EXPECT_DOUBLE_EQ(watermark.NumberOf(context, 5), 0.26663651050962056);
}

// Over many contexts, a token is drawn as often as its weight says.
TEST(WatermarkTest, DrawsByTheWeights) {
  const Watermark watermark({.key = kKey});
  const std::vector<ops::Candidate> tokens = {{.logit = 0.5f, .token_id = 3},
                                              {.logit = 0.0f, .token_id = 4},
                                              {.logit = 0.2f, .token_id = 70'000},
                                              {.logit = 0.3f, .token_id = 150'000}};
  const ops::KeptTokens kept = {.tokens = tokens, .total = 1.0};
  constexpr int kDraws = 20'000;
  std::vector<int> counts(tokens.size());
  for (int32_t i = 0; i < kDraws; ++i) {
    const int32_t drawn = watermark.Draw(kept, watermark.ContextOf(std::vector{1, 2, 3, i}));
    for (size_t t = 0; t < tokens.size(); ++t) counts[t] += tokens[t].token_id == drawn ? 1 : 0;
  }
  for (size_t t = 0; t < tokens.size(); ++t) {
    // Four standard deviations of a binomial distribution are 0.014 at most.
    EXPECT_NEAR(static_cast<double>(counts[t]) / kDraws, tokens[t].logit, 0.015);
  }
}

TEST(WatermarkTest, FindsItsOwnTexts) {
  const Watermark watermark({.key = kKey}), other({.key = kKey + 1});
  std::vector<ops::Candidate> tokens;
  for (int32_t id = 0; id < 20; ++id) tokens.push_back({.logit = 1.0f, .token_id = id});
  const ops::KeptTokens kept = {.tokens = tokens, .total = 20.0};
  std::vector<int32_t> text = {5, 5, 5, 5};
  while (text.size() < 204) text.push_back(watermark.Draw(kept, watermark.ContextOf(text)));
  const auto score = [&](const Watermark& of) {
    double sum = 0.0;
    const std::vector<double> numbers = of.NumbersOf(text);
    EXPECT_GT(numbers.size(), 150u);
    for (const double u : numbers) sum -= std::log1p(-u);
    return sum / static_cast<double>(numbers.size());
  };
  EXPECT_GT(score(watermark), 2.0);      // about 1 + 1/2 + ... + 1/20 = 3.6 of equal weights
  EXPECT_NEAR(score(other), 1.0, 0.35);  // 4 standard deviations of 150 numbers
}

TEST(WatermarkTest, ARepeatedContextCountsOnce) {
  const Watermark watermark({.key = kKey, .context_tokens = 2});
  const std::vector<int32_t> text = {1, 2, 3, 1, 2, 3, 1, 2, 4};
  EXPECT_EQ(watermark.NumbersOf(text).size(), 3u);  // behind (1, 2), (2, 3) and (3, 1)
  EXPECT_TRUE(watermark.NumbersOf(std::vector{1, 2}).empty());
}

}  // namespace
}  // namespace pagemill::sampling
