#include "cc/ops/select_rows/select_rows.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(SelectRows, Conformance) {
  CheckSelectRowsConformance(SelectRowsOp(), device::DetectCapabilities());
}

TEST(SelectRows, CheckNamesTheMismatch) {
  const auto view = [](DType dtype, std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, dtype, dims);
  };
  const Attributes attributes;
  const auto check = [&](TensorView x, TensorView rows, TensorView y) {
    const TensorView inputs[] = {x, rows};
    const TensorView outputs[] = {y};
    return SelectRowsOp().check({.inputs = inputs, .outputs = outputs, .attributes = &attributes});
  };
  const TensorView x = view(DType::kF32, {9, 64});
  const TensorView rows = view(DType::kI32, {4});
  EXPECT_TRUE(check(x, rows, view(DType::kF32, {4, 64})).ok());
  EXPECT_TRUE(check(x, rows, view(DType::kF32, {4, 8, 8})).ok());
  EXPECT_EQ(check(x, view(DType::kI32, {4, 1}), view(DType::kF32, {4, 64})).message(),
            "select_rows: rows must be i32 [L=4], got i32 [4, 1]");
  EXPECT_EQ(check(x, rows, view(DType::kF32, {4, 63})).message(),
            "select_rows: y must be f32 [L=4, H=64*], got f32 [4, 63]");
  EXPECT_FALSE(check(view(DType::kBF16, {9, 64}), rows, view(DType::kF32, {4, 64})).ok());
}

}  // namespace
}  // namespace pagemill::ops
