#include "cc/ops/scatter_rows/scatter_rows.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(ScatterRows, Conformance) {
  CheckScatterRowsConformance(ScatterRowsOp(), device::DetectCapabilities());
}

TEST(ScatterRows, CheckNamesTheMismatch) {
  const auto view = [](DType dtype, std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, dtype, dims);
  };
  const Attributes attributes;
  const auto check = [&](TensorView y, TensorView rows) {
    const TensorView x = view(DType::kF32, {9, 64});
    const TensorView inputs[] = {x, y, rows};
    const TensorView outputs[] = {x};
    return ScatterRowsOp()
        .check({.inputs = inputs, .outputs = outputs, .attributes = &attributes})
        .message();
  };
  EXPECT_EQ(check(view(DType::kF32, {4, 64}), view(DType::kI32, {4})), "");
  EXPECT_EQ(check(view(DType::kF32, {4, 64}), view(DType::kI32, {5})),
            "scatter_rows: rows must be i32 [M=4], got i32 [5]");
  EXPECT_NE(check(view(DType::kF32, {4, 63}), view(DType::kI32, {4})), "");
  EXPECT_NE(check(view(DType::kBF16, {4, 64}), view(DType::kI32, {4})), "");
}

}  // namespace
}  // namespace pagemill::ops
