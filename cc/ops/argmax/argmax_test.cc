#include "cc/ops/argmax/argmax.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(Argmax, Conformance) { CheckArgmaxConformance(ArgmaxOp(), device::DetectCapabilities()); }

TEST(Argmax, CheckNamesTheMismatch) {
  const TensorView inputs[] = {TensorView::Dense(nullptr, DType::kF32, {4, 9})};
  const TensorView outputs[] = {TensorView::Dense(nullptr, DType::kI32, {3}),
                                TensorView::Dense(nullptr, DType::kF32, {4})};
  const Attributes attributes;
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  EXPECT_EQ(ArgmaxOp().check(call).message(), "argmax: columns must be i32 [L=4], got i32 [3]");
}

}  // namespace
}  // namespace pagemill::ops
