#include "cc/ops/unfold/unfold.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(Unfold, Conformance) { CheckUnfoldConformance(UnfoldOp(), device::DetectCapabilities()); }

TEST(Unfold, CheckNamesTheMismatch) {
  const auto check = [](std::initializer_list<int64_t> y, double size, double padding = 1) {
    const TensorView inputs[] = {TensorView::Dense(nullptr, DType::kF32, {5, 7, 4})};
    const TensorView outputs[] = {TensorView::Dense(nullptr, DType::kF32, y)};
    Attributes attributes;
    attributes.Set("size", size);
    attributes.Set("stride", 2);
    attributes.Set("padding", padding);
    return UnfoldOp().check({.inputs = inputs, .outputs = outputs, .attributes = &attributes});
  };
  EXPECT_TRUE(check({5, 4, 12}, 3).ok());
  EXPECT_EQ(check({5, 3, 12}, 3).message(),
            "unfold: y must have 4 windows of 12 elements, got 3 of 12");
  EXPECT_EQ(check({5, 4, 13}, 3).message(),
            "unfold: y must have 4 windows of 12 elements, got 4 of 13");
  EXPECT_EQ(check({5, 1, 40}, 10).message(), "unfold: x has no window of 10 positions");
  EXPECT_FALSE(check({4, 4, 12}, 3).ok());
  EXPECT_FALSE(check({5, 48}, 3).ok());
  EXPECT_FALSE(check({5, 4, 0}, 0).ok());
  EXPECT_FALSE(check({5, 4, 12}, 3, 3).ok()) << "a window of zeros alone";
}

}  // namespace
}  // namespace pagemill::ops
