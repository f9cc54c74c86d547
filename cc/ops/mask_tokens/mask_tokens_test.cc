#include "cc/ops/mask_tokens/mask_tokens.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(MaskTokens, Conformance) {
  CheckMaskTokensConformance(MaskTokensOp(), device::DetectCapabilities());
}

TEST(MaskTokens, CheckNamesTheMismatch) {
  const TensorView x = TensorView::Dense(nullptr, DType::kF32, {4, 33});
  const TensorView inputs[] = {x, TensorView::Dense(nullptr, DType::kI32, {4, 8}),
                               TensorView::Dense(nullptr, DType::kI32, {2, 1})};
  const TensorView outputs[] = {x};
  const Attributes attributes;
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  EXPECT_EQ(MaskTokensOp().check(call).message(),
            "mask_tokens: masks must have a bit for each column of x");
}

}  // namespace
}  // namespace pagemill::ops
