#include "cc/ops/draw_tokens/draw_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/sample/row_draw.h"

namespace pagemill::ops {
namespace {

TEST(DrawTokens, Conformance) {
  CheckDrawTokensConformance(DrawTokensOp(), device::DetectCapabilities());
}

TEST(DrawTokens, CheckNamesTheMismatch) {
  const TensorView columns = TensorView::Dense(nullptr, DType::kI32, {4});
  const TensorView inputs[] = {TensorView::Dense(nullptr, DType::kF32, {4, 9}), columns,
                               TensorView::Dense(nullptr, DType::kF32, {4}),
                               TensorView::Dense(nullptr, DType::kI32, {4, 7})};
  const TensorView outputs[] = {columns};
  const Attributes attributes;
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  EXPECT_EQ(DrawTokensOp().check(call).message(), "draw_tokens: draws must have 8 words a row");
}

// One row, drawn with 20,000 seeds: a chi-square test over five tokens; the two that top_k excludes
// are never drawn.
TEST(DrawTokens, FrequenciesFollowTheDistribution) {
  constexpr int64_t kRows = 20000, kWidth = 7;
  const float logits[kWidth] = {0.0f, 1.0f, 2.0f, -9.0f, 0.5f, -8.0f, 1.5f};
  const double temperature = 0.7;
  std::vector<float> x;
  std::vector<int32_t> words(static_cast<size_t>(kRows * kRowDrawWords));
  for (int64_t row = 0; row < kRows; ++row) {
    x.insert(x.end(), logits, logits + kWidth);
    RowDraw draw = {.temperature = static_cast<float>(temperature), .top_k = 5};
    draw.SetSeed(static_cast<uint64_t>(row) << 31);
    std::memcpy(&words[static_cast<size_t>(row * kRowDrawWords)], &draw, sizeof(draw));
  }
  std::vector<int32_t> columns(static_cast<size_t>(kRows), 2);
  std::vector<float> values(static_cast<size_t>(kRows), 2.0f);
  const TensorView y = TensorView::Dense(columns.data(), DType::kI32, {kRows});
  const TensorView inputs[] = {
      TensorView::Dense(x.data(), DType::kF32, {kRows, kWidth}), y,
      TensorView::Dense(values.data(), DType::kF32, {kRows}),
      TensorView::Dense(words.data(), DType::kI32, {kRows, kRowDrawWords})};
  const TensorView outputs[] = {y};
  const Attributes attributes;
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  const StatusOr<const Kernel*> kernel =
      ChooseKernel(DrawTokensOp(), device::DetectCapabilities(), call);
  ASSERT_TRUE(kernel.ok());
  device::ThreadPool pool({.num_threads = 1});
  conformance::RunKernel(**kernel, call, pool);
  double total = 0.0, chi_square = 0.0;
  for (const float logit : logits) total += logit < -5 ? 0.0 : std::exp(logit / temperature);
  for (int64_t token = 0; token < kWidth; ++token) {
    const auto count = static_cast<double>(std::count(columns.begin(), columns.end(), token));
    if (logits[token] < -5) {
      EXPECT_EQ(count, 0) << token;
      continue;
    }
    const double expected = kRows * std::exp(logits[token] / temperature) / total;
    chi_square += (count - expected) * (count - expected) / expected;
  }
  EXPECT_LT(chi_square, 18.5);  // four degrees of freedom: exceeded once in a thousand
}

}  // namespace
}  // namespace pagemill::ops
