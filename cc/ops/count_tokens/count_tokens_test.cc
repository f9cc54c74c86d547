#include "cc/ops/count_tokens/count_tokens.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(CountTokens, Conformance) {
  CheckCountTokensConformance(CountTokensOp(), device::DetectCapabilities());
}

TEST(CountTokens, CheckNamesTheMismatch) {
  const TensorView inputs[] = {TensorView::Dense(nullptr, DType::kI32, {4, 33}),
                               TensorView::Dense(nullptr, DType::kI32, {2}),
                               TensorView::Dense(nullptr, DType::kI32, {5, 2}),
                               TensorView::Dense(nullptr, DType::kI32, {9})};
  const Attributes attributes;
  const OpCall call{.inputs = inputs, .outputs = {}, .attributes = &attributes};
  EXPECT_EQ(CountTokensOp().check(call).message(), "count_tokens: changes must have 3 words a row");
}

}  // namespace
}  // namespace pagemill::ops
