#include "cc/ops/rotary/rotary.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(Rotary, Conformance) { CheckRotaryConformance(RotaryOp(), device::DetectCapabilities()); }

TEST(Rotary, RefusesMorePairsThanHalfTheHead) {
  const TensorView q = TensorView::Dense(nullptr, DType::kF32, {4, 2, 8});
  const TensorView positions = TensorView::Dense(nullptr, DType::kI32, {4});
  const Attributes attributes;
  for (int64_t pairs : {1, 4, 5}) {
    const TensorView inv_freq = TensorView::Dense(nullptr, DType::kF32, {pairs});
    const TensorView inputs[] = {q, q, positions, inv_freq};
    const TensorView outputs[] = {q, q};
    const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
    EXPECT_EQ(RotaryOp().check(call).ok(), pairs <= 4) << RotaryOp().check(call).ToString();
  }
}

}  // namespace
}  // namespace pagemill::ops
