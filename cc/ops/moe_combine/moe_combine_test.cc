#include "cc/ops/moe_combine/moe_combine.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(MoeCombine, Conformance) {
  CheckMoeCombineConformance(MoeCombineOp(), device::DetectCapabilities());
}

TEST(MoeCombine, CheckNamesTheMismatch) {
  const auto check = [](std::initializer_list<int64_t> x, std::initializer_list<int64_t> y) {
    const TensorView inputs[] = {TensorView::Dense(nullptr, DType::kF32, x),
                                 TensorView::Dense(nullptr, DType::kF32, {5, 3})};
    const TensorView outputs[] = {TensorView::Dense(nullptr, DType::kF32, y)};
    const Attributes attributes;
    return MoeCombineOp().check({.inputs = inputs, .outputs = outputs, .attributes = &attributes});
  };
  EXPECT_TRUE(check({5, 3, 8}, {5, 8}).ok()) << check({5, 3, 8}, {5, 8}).ToString();
  EXPECT_TRUE(check({5, 3, 8}, {5, 2, 4}).ok());
  EXPECT_EQ(check({5, 2, 8}, {5, 8}).message(),
            "moe_combine: x must be f32 [N=5, J=3, H*], got f32 [5, 2, 8]");
  EXPECT_TRUE(check({5, 8}, {5, 8}).ok());
  EXPECT_FALSE(check({5, 3, 8}, {5, 20}).ok());
}

}  // namespace
}  // namespace pagemill::ops
