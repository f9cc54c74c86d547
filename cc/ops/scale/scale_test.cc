#include "cc/ops/scale/scale.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(Scale, Conformance) { CheckScaleConformance(ScaleOp(), device::DetectCapabilities()); }

TEST(Scale, ByHand) {
  conformance::TestTensor x(DType::kF32, {2, 2}), y(DType::kF32, {2, 2});
  x.Set(std::vector<float>{1, -2, 3, 0});
  const TensorView inputs[] = {x.view()}, outputs[] = {y.view()};
  Attributes attributes;
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  EXPECT_FALSE(ScaleOp().check(call).ok()) << "the number is missing";
  attributes.Set("by", 0.5);
  ASSERT_TRUE(ScaleOp().check(call).ok());
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel& kernel : ScaleOp().kernels) {
    y.Poison();
    conformance::RunKernel(kernel, call, pool);
    EXPECT_TRUE(conformance::BitEqual(y.ToFloat(), std::vector<float>{0.5f, -1, 1.5f, 0}));
  }
}

// Two rows of two groups: -1, 2 and 0.5, 0.
TEST(Scale, GroupsByHand) {
  conformance::TestTensor x(DType::kF32, {2, 2, 2}), factors(DType::kF32, {2, 2});
  conformance::TestTensor y(DType::kF32, {2, 2, 2});
  x.Set(std::vector<float>{1, -2, 3, 0, 1, 2, 3, 4});
  factors.Set(std::vector<float>{-1, 2, 0.5f, 0});
  const TensorView inputs[] = {x.view(), factors.view()}, outputs[] = {y.view()};
  Attributes attributes;
  attributes.Set("by", 2);
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  ASSERT_TRUE(ScaleOp().check(call).ok()) << ScaleOp().check(call).ToString();
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel& kernel : ScaleOp().kernels) {
    y.Poison();
    conformance::RunKernel(kernel, call, pool);
    EXPECT_EQ(y.ToFloat(), (std::vector<float>{-2, 4, 12, 0, 1, 2, 0, 0})) << kernel.name;
  }
}

// 1 and 1 + 0.5 ln 2 and 1 + 0.5 ln 4, twice.
TEST(Scale, GrowsWithThePosition) {
  conformance::TestTensor x(DType::kF32, {4, 1}), positions(DType::kI32, {4});
  conformance::TestTensor y(DType::kF32, {4, 1});
  x.Set(std::vector<float>{1, -1, 2, 1});
  positions.SetInt(std::vector<int32_t>{7, 8, 15, 24});
  const TensorView inputs[] = {x.view(), positions.view()}, outputs[] = {y.view()};
  Attributes attributes;
  attributes.Set("by", 2);
  attributes.Set("growth", 0.5);
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  EXPECT_FALSE(ScaleOp().check(call).ok()) << "the context is missing";
  attributes.Set("context", 8);
  ASSERT_TRUE(ScaleOp().check(call).ok()) << ScaleOp().check(call).ToString();
  device::ThreadPool pool({.num_threads = 2});
  for (const Kernel& kernel : ScaleOp().kernels) {
    y.Poison();
    conformance::RunKernel(kernel, call, pool);
    const std::vector<float> result = y.ToFloat();
    const double expected[] = {2, -2.693147181, 5.386294361, 3.386294361};
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(result[i], expected[i], 1e-6) << kernel.name;
  }
  attributes.Set("offset", 1);
  ASSERT_TRUE(ScaleOp().check(call).ok()) << ScaleOp().check(call).ToString();
  for (const Kernel& kernel : ScaleOp().kernels) {
    conformance::RunKernel(kernel, call, pool);
    EXPECT_NEAR(y.ToFloat()[0], 2.693147181, 1e-6) << kernel.name;
  }
}

}  // namespace
}  // namespace pagemill::ops
