#include "cc/ops/scale/scale.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace pagemill::ops
