#include "cc/ops/score_tokens/score_tokens.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(ScoreTokens, Conformance) {
  CheckScoreTokensConformance(ScoreTokensOp(), device::DetectCapabilities());
}

TEST(ScoreTokens, CheckNamesTheMismatch) {
  const TensorView inputs[] = {TensorView::Dense(nullptr, DType::kF32, {4, 33}),
                               TensorView::Dense(nullptr, DType::kF32, {2, 33}),
                               TensorView::Dense(nullptr, DType::kI32, {4}),
                               TensorView::Dense(nullptr, DType::kI32, {5, 4})};
  const TensorView outputs[] = {TensorView::Dense(nullptr, DType::kI32, {5, 41})};
  const Attributes attributes;
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  EXPECT_EQ(ScoreTokensOp().check(call).message(), "score_tokens: y must have 42 words a row");
}

}  // namespace
}  // namespace pagemill::ops
