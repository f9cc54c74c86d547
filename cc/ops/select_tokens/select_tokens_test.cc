#include "cc/ops/select_tokens/select_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/select_tokens/best_tokens.h"
#include "cc/ops/select_tokens/token_case.h"

namespace pagemill::ops {
namespace {

TEST(SelectTokens, Conformance) {
  CheckSelectTokensConformance(SelectTokensOp(), device::DetectCapabilities());
}

// Two heads score four tokens: relu(k0) - 2 relu(k1), of keys (1, 0), (3, 1), (-5, 0) and NaN.
TEST(SelectTokens, ByHand) {
  const int32_t starts[] = {0, 2}, lens[] = {4}, table[] = {1};
  const BatchView batch{
      {.num_tokens = 2, .num_requests = 1, .query_start = starts, .seq_lens = lens},
      {.block_size = 4, .block_table = table, .block_table_stride = 1}};
  conformance::TestTensor q(DType::kF32, {2, 2, 1}), rope(DType::kF32, {2, 2, 1});
  conformance::TestTensor weights(DType::kF32, {2, 2});
  conformance::TestTensor cache(DType::kF32, {2, 4, 2}), chosen(DType::kI32, {2, 2});
  q.Set(std::vector<float>{1, 0, 1, 0});
  rope.Set(std::vector<float>{0, 1, 0, 1});
  weights.Set(std::vector<float>{1, -2, -1, 2});
  const float nan = std::nanf("");
  std::vector<float> stored(8, nan);
  for (float value : {1.f, 0.f, 3.f, 1.f, -5.f, 0.f, nan, nan}) stored.push_back(value);
  cache.Set(stored);
  const TensorView inputs[] = {q.view(), rope.view(), weights.view(), cache.view()};
  const TensorView outputs[] = {chosen.view()};
  Attributes attributes;
  attributes.Set("choices", 2);
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch};
  device::ThreadPool pool({.num_threads = 3});
  for (const Kernel* kernel :
       conformance::SupportedKernels(SelectTokensOp(), device::DetectCapabilities(), call)) {
    chosen.Poison();
    conformance::RunKernel(*kernel, call, pool);
    // Scores 1, 1, 0: the lower of equal ones, and the other; then -1, -1, 0, NaN.
    EXPECT_EQ(chosen.ToFloat(), (std::vector<float>{0, 1, 0, 2})) << kernel->name;
  }
}

TEST(SelectTokens, KeepsTheBestOfMany) {
  std::vector<select_tokens::ScoredToken> buffer(6);
  select_tokens::BestTokens best(buffer.data(), 3);
  for (int32_t i = 0; i < 100; ++i) best.Offer({static_cast<float>(i * 37 % 101), i});
  std::vector<float> scores;
  for (const select_tokens::ScoredToken& token : best.Finish()) scores.push_back(token.score);
  std::sort(scores.begin(), scores.end());
  EXPECT_EQ(scores, (std::vector<float>{98, 99, 100}));
}

TEST(SelectTokens, CheckNamesTheMismatch) {
  const BatchView batch{{}, {.block_size = 16}};
  const auto check = [&](std::initializer_list<int64_t> cache, int64_t choices, double attribute) {
    const TensorView inputs[] = {TensorView::Dense(nullptr, DType::kF32, {4, 3, 24}),
                                 TensorView::Dense(nullptr, DType::kF32, {4, 3, 8}),
                                 TensorView::Dense(nullptr, DType::kF32, {4, 3}),
                                 TensorView::Dense(nullptr, DType::kBF16, cache)};
    const TensorView outputs[] = {TensorView::Dense(nullptr, DType::kI32, {4, choices})};
    Attributes attributes;
    attributes.Set("choices", attribute);
    return SelectTokensOp().check(
        {.inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch});
  };
  EXPECT_TRUE(check({5, 16, 32}, 7, 7).ok()) << check({5, 16, 32}, 7, 7).ToString();
  EXPECT_EQ(check({5, 16, 24}, 7, 7).message(),
            "select_tokens: rows of the cache must have 32 elements, got 24");
  EXPECT_FALSE(check({5, 16, 32}, 7, 8).ok());
  EXPECT_EQ(check({5, 16, 32}, 65537, 65537).message(),
            "select_tokens: 1 to 65536 tokens can be chosen, got 65537");
}

}  // namespace
}  // namespace pagemill::ops
