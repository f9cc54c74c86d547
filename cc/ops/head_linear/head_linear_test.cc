#include "cc/ops/head_linear/head_linear.h"

#include <gtest/gtest.h>

#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(HeadLinear, Conformance) {
  CheckHeadLinearConformance(HeadLinearOp(), device::DetectCapabilities());
}

// Two heads, each with a matrix between unrelated rows.
TEST(HeadLinear, ByHand) {
  conformance::TestTensor x(DType::kF32, {1, 2, 2}), y(DType::kF32, {1, 2, 2});
  conformance::TestTensor w(DType::kF32, {2, 2, 2}, {.row_padding_bytes = 8});
  x.Set(std::vector<float>{1, 10, 1, 100});
  w.Set(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  const TensorView inputs[] = {x.view(), w.view()}, outputs[] = {y.view()};
  for (bool transposed : {false, true}) {
    Attributes attributes;
    attributes.Set("transposed", transposed ? 1 : 0);
    const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
    const std::vector<float> expected =
        transposed ? std::vector<float>{31, 42, 705, 806} : std::vector<float>{21, 43, 605, 807};
    device::ThreadPool pool({.num_threads = 1});
    for (const Kernel* kernel :
         conformance::SupportedKernels(HeadLinearOp(), device::DetectCapabilities(), call)) {
      y.Poison();
      conformance::RunKernel(*kernel, call, pool);
      EXPECT_EQ(y.ToFloat(), expected) << kernel->name << " " << transposed;
    }
  }
}

TEST(HeadLinear, CheckNamesTheMismatch) {
  const auto check = [](DType dtype, std::initializer_list<int64_t> w, bool transposed) {
    const TensorView inputs[] = {TensorView::Dense(nullptr, DType::kF32, {5, 3, 32}),
                                 TensorView::Dense(nullptr, dtype, w)};
    const TensorView outputs[] = {TensorView::Dense(nullptr, DType::kF32, {5, 3, 24})};
    Attributes attributes;
    attributes.Set("transposed", transposed ? 1 : 0);
    return HeadLinearOp().check({.inputs = inputs, .outputs = outputs, .attributes = &attributes});
  };
  EXPECT_TRUE(check(DType::kQ8_0, {3, 24, 32}, false).ok());
  EXPECT_TRUE(check(DType::kBF16, {3, 32, 24}, true).ok());
  EXPECT_EQ(check(DType::kBF16, {3, 24, 32}, true).message(),
            "head_linear: W must be bf16 [J=3, K=32, M], got bf16 [3, 24, 32]");
  EXPECT_EQ(check(DType::kQ8_0, {3, 32, 24}, true).message(),
            "head_linear: rows of W have 24 elements, not a multiple of the block of 32 of q8_0");
  EXPECT_FALSE(check(DType::kBF16, {2, 24, 32}, false).ok());
  EXPECT_FALSE(check(DType::kI32, {3, 24, 32}, false).ok());
}

}  // namespace
}  // namespace pagemill::ops
