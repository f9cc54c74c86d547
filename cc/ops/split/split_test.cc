#include "cc/ops/split/split.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(Split, Conformance) { CheckSplitConformance(SplitOp(), device::DetectCapabilities()); }

TEST(Split, CheckNamesTheMismatch) {
  const auto check = [](DType dtype, std::initializer_list<int64_t> a,
                        std::initializer_list<int64_t> b, double at = 6) {
    const TensorView inputs[] = {TensorView::Dense(nullptr, DType::kF32, {5, 3, 8})};
    const TensorView outputs[] = {TensorView::Dense(nullptr, dtype, a),
                                  TensorView::Dense(nullptr, dtype, b)};
    Attributes attributes;
    attributes.Set("at", at);
    return SplitOp().check({.inputs = inputs, .outputs = outputs, .attributes = &attributes});
  };
  EXPECT_TRUE(check(DType::kF32, {5, 3, 6}, {5, 3, 2}).ok());
  EXPECT_EQ(check(DType::kF32, {5, 3, 6}, {5, 3, 3}).message(),
            "split: part 1 must have 6 elements a row, got 9");
  EXPECT_TRUE(check(DType::kF32, {5, 9, 2}, {5, 6}).ok()) << "rows of another shape";
  EXPECT_FALSE(check(DType::kF32, {5, 3, 6}, {4, 3, 2}).ok());
  EXPECT_FALSE(check(DType::kBF16, {5, 3, 6}, {5, 3, 2}).ok());
  EXPECT_FALSE(check(DType::kF32, {5, 3, 8}, {5, 3, 0}, 8).ok());
}

}  // namespace
}  // namespace pagemill::ops
