#include "cc/ops/head_linear/head_linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/tensor/quantized.h"

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

// Weights with scales: kernels round each to bf16, or not at all if scales are powers of two.
TEST(HeadLinear, WeightsWithScales) {
  constexpr int64_t kHeads = 3, kM = 40, kK = 72;
  const device::Capabilities caps = device::DetectCapabilities();
  device::ThreadPool pool({.num_threads = 2});
  for (DType dtype : {DType::kI8, DType::kF8E4M3}) {
    for (bool transposed : {false, true}) {
      for (bool exact : {false, true}) {
        SCOPED_TRACE(std::string(Info(dtype).name) + (transposed ? " transposed" : ""));
        conformance::Random random(5);
        conformance::TestTensor values(dtype, {kHeads, kM, kK}, {.row_padding_bytes = 8});
        conformance::TestTensor scales(DType::kF32, {kHeads, 3, 3});
        values.FillUniform(random, -4, 4);
        if (exact) {
          std::vector<float> powers;
          for (int i = 0; i < kHeads * 9; ++i) powers.push_back(std::ldexp(1.0f, i % 5 - 4));
          scales.Set(powers);
        } else {
          scales.FillUniform(random, 0.5, 1);
        }
        const QuantizedParts parts = {.format = {.block_rows = 16, .block_columns = 32},
                                      .values = values.view(),
                                      .scales = scales.view(),
                                      .zeros = {},
                                      .groups = {}};
        TensorView w = values.view();
        w.parts = &parts;
        conformance::TestTensor x(DType::kF32, {5, kHeads, transposed ? kM : kK});
        conformance::TestTensor y(DType::kF32, {5, kHeads, transposed ? kK : kM});
        x.FillUniform(random, -1, 1);
        Attributes attributes;
        attributes.Set("transposed", transposed ? 1 : 0);
        const TensorView inputs[] = {x.view(), w}, outputs[] = {y.view()};
        const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
        ASSERT_TRUE(HeadLinearOp().check(call).ok()) << HeadLinearOp().check(call).ToString();
        conformance::RunKernel(conformance::ReferenceKernel(HeadLinearOp()), call, pool);
        const std::vector<float> reference = y.ToFloat();
        // |w| <= 4, and at most 72 products, whose sum is rounded 72 times.
        const double rounding = kK * 0x1p-24 + (exact ? 0 : 0x1p-9);
        size_t kernels = 0;
        for (const Kernel* kernel : conformance::SupportedKernels(HeadLinearOp(), caps, call)) {
          kernels += kernel->packing != nullptr;
          y.Poison();
          conformance::RunKernel(*kernel, call, pool);
          EXPECT_TRUE(conformance::AllClose(y.ToFloat(), reference, {.abs = 4 * kK * rounding}))
              << kernel->name;
        }
        EXPECT_GE(kernels, 1u);
      }
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
