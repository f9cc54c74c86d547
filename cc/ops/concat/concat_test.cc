#include "cc/ops/concat/concat.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(Concat, Conformance) { CheckConcatConformance(ConcatOp(), device::DetectCapabilities()); }

TEST(Concat, CheckNamesTheMismatch) {
  const auto view = [](std::initializer_list<int64_t> dims, DType dtype = DType::kF32) {
    return TensorView::Dense(nullptr, dtype, dims);
  };
  const auto check = [](const std::vector<TensorView>& inputs, const TensorView& y) {
    const TensorView outputs[] = {y};
    const Attributes attributes;
    return ConcatOp()
        .check({.inputs = inputs, .outputs = outputs, .attributes = &attributes})
        .message();
  };
  EXPECT_EQ(check({view({5, 3, 2}), view({5, 7})}, view({5, 13})), "");
  EXPECT_EQ(check({view({5, 3}), view({5, 7})}, view({5, 2, 5})), "");
  EXPECT_EQ(check({view({5, 3}), view({5, 7})}, view({5, 11})),
            "concat: y must have rows of 10 elements, got 11");
  EXPECT_EQ(check({view({5, 3})}, view({5, 3})), "concat: expected 2 to 8 inputs, got 1");
  EXPECT_NE(check({view({5, 3}), view({4, 7})}, view({5, 10})), "");
  EXPECT_NE(check({view({5, 3}), view({5, 7}, DType::kBF16)}, view({5, 10})), "");
}

}  // namespace
}  // namespace pagemill::ops
