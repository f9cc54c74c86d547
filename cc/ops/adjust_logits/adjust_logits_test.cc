#include "cc/ops/adjust_logits/adjust_logits.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(AdjustLogits, Conformance) {
  CheckAdjustLogitsConformance(AdjustLogitsOp(), device::DetectCapabilities());
}

TEST(AdjustLogits, CheckNamesTheMismatch) {
  const TensorView inputs[] = {TensorView::Dense(nullptr, DType::kF32, {4, 33}),
                               TensorView::Dense(nullptr, DType::kI32, {2, 33}),
                               TensorView::Dense(nullptr, DType::kI32, {5, 3}),
                               TensorView::Dense(nullptr, DType::kI32, {1, 4}),
                               TensorView::Dense(nullptr, DType::kI32, {9})};
  const Attributes attributes;
  const OpCall call{.inputs = inputs, .outputs = {}, .attributes = &attributes};
  EXPECT_EQ(AdjustLogitsOp().check(call).message(),
            "adjust_logits: penalties must have 7 words a row");
}

}  // namespace
}  // namespace pagemill::ops
