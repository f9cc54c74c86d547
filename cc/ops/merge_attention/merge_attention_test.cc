#include "cc/ops/merge_attention/merge_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

using conformance::TestTensor;

TEST(MergeAttention, Conformance) {
  CheckMergeAttentionConformance(MergeAttentionOp(), device::DetectCapabilities());
}

// Sums of 1 and 3 beside a sink of 4, and without sinks; sets without keys; NaN.
TEST(MergeAttention, ByHand) {
  TestTensor sinks(DType::kF32, {1}), x(DType::kF32, {4, 1, 1}), z(DType::kF32, {4, 1, 1});
  TestTensor x_sums(DType::kF32, {4, 1}), z_sums(DType::kF32, {4, 1}), y(DType::kF32, {4, 1, 1});
  const float log3 = std::log(3.0f), none = -INFINITY, nan = std::nanf("");
  sinks.Set(std::vector<float>{std::log(4.0f)});
  x.Set(std::vector<float>{16, 16, 0, 1});
  z.Set(std::vector<float>{8, 0, 0, 1});
  x_sums.Set(std::vector<float>{0, 0, none, nan});
  z_sums.Set(std::vector<float>{log3, none, none, 0});
  const TensorView inputs[] = {sinks.view(), x.view(), x_sums.view(), z.view(), z_sums.view()};
  const TensorView without[] = {{}, x.view(), x_sums.view(), z.view(), z_sums.view()};
  const TensorView outputs[] = {y.view()};
  const Attributes attributes;
  device::ThreadPool pool({.num_threads = 1});
  const auto run = [&](const Kernel& kernel, std::span<const TensorView> operands) {
    y.Poison();
    conformance::RunKernel(
        kernel, {.inputs = operands, .outputs = outputs, .attributes = &attributes}, pool);
    std::vector<float> values = y.ToFloat();
    EXPECT_TRUE(std::isnan(values[3])) << kernel.name;
    values.pop_back();
    return values;
  };
  for (const Kernel& kernel : MergeAttentionOp().kernels) {
    EXPECT_TRUE(conformance::AllClose(run(kernel, inputs), std::vector<float>{5, 3.2f, 0},
                                      {.abs = 1e-5}))
        << kernel.name;
    EXPECT_TRUE(conformance::AllClose(run(kernel, without), std::vector<float>{10, 16, 0},
                                      {.abs = 1e-5}))
        << kernel.name;
  }
}

TEST(MergeAttention, CheckNamesTheMismatch) {
  const auto view = [](std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, DType::kF32, dims);
  };
  const auto check = [&](std::initializer_list<int64_t> sums, std::initializer_list<int64_t> y) {
    const TensorView inputs[] = {view({3}), view({5, 3, 8}), view(sums)};
    const TensorView outputs[] = {view(y)};
    const Attributes attributes;
    return MergeAttentionOp().check(
        {.inputs = inputs, .outputs = outputs, .attributes = &attributes});
  };
  EXPECT_TRUE(check({5, 3}, {5, 3, 8}).ok());
  EXPECT_TRUE(check({5, 3}, {5, 2, 12}).ok());
  EXPECT_EQ(check({5, 2}, {5, 3, 8}).message(),
            "merge_attention: lse_0 must be f32 [T=5, H=3], got f32 [5, 2]");
  EXPECT_EQ(check({5, 3}, {5, 20}).message(),
            "merge_attention: rows of y must have 24 elements, got 20");
}

}  // namespace
}  // namespace pagemill::ops
