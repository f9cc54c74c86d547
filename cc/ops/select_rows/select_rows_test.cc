#include "cc/ops/select_rows/select_rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"

namespace pagemill::ops {
namespace {

using conformance::Random;
using conformance::TestTensor;

void CheckGather(int64_t tokens, int64_t rows, int64_t hidden) {
  SCOPED_TRACE(::testing::Message() << tokens << " tokens, " << rows << " rows of " << hidden);
  Random random(6);
  TestTensor x(DType::kF32, {tokens, hidden}, {.misalign_bytes = 4, .row_padding_bytes = 4});
  TestTensor indices(DType::kI32, {rows}, {.misalign_bytes = 4});
  TestTensor y(DType::kF32, {rows, hidden}, {.misalign_bytes = 4, .row_padding_bytes = 8});
  x.FillUniform(random, -1, 1);
  indices.FillUniform(random, 0, static_cast<float>(tokens - 1));
  std::vector<float> expected;
  for (int64_t l = 0; l < rows; ++l) {
    const float* row = x.view().Row<float>(*(indices.view().Row<int32_t>(l)));
    expected.insert(expected.end(), row, row + hidden);
  }
  const Attributes attributes;
  const TensorView inputs[] = {x.view(), indices.view()};
  const TensorView outputs[] = {y.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  ASSERT_TRUE(SelectRowsOp().check(call).ok());
  for (int32_t threads = 1; threads <= 3; threads += 2) {
    device::ThreadPool pool({.num_threads = threads});
    for (const KernelRow* row :
         conformance::SupportedRows(SelectRowsOp(), device::DetectCapabilities(), call)) {
      y.Poison();
      conformance::RunRow(*row, call, pool);
      EXPECT_TRUE(conformance::BitEqual(y.ToFloat(), expected)) << row->name;
      EXPECT_TRUE(y.GuardsIntact()) << row->name;
    }
  }
}

TEST(SelectRows, CopiesTheRowsThatAreNamed) {
  CheckGather(1, 1, 1);
  CheckGather(9, 0, 5);
  CheckGather(9, 4, 33);
  CheckGather(67, 67, 7);
  CheckGather(3, 50, 576);  // rows may repeat
}

TEST(SelectRows, CheckNamesWhatDoesNotFit) {
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
