#include "cc/ops/stream_weights/stream_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

using conformance::TestTensor;

TEST(StreamWeights, Conformance) {
  CheckStreamWeightsConformance(StreamWeightsOp(), device::DetectCapabilities());
}

// Runs two streams; `mixes` and `base` are those of 2 inputs, 2 results and 4 pairs.
std::vector<float> After(const Kernel& kernel, const std::vector<float>& mixes, int iterations) {
  TestTensor rows(DType::kF32, {1, 8}), base(DType::kF32, {8}), scale(DType::kF32, {3});
  TestTensor before(DType::kF32, {1, 2}), after(DType::kF32, {1, 2, 3});
  rows.Set(mixes);
  base.Set(std::vector<float>(8, 0.0f));
  scale.Set(std::vector<float>{1, 1, 1});
  const TensorView inputs[] = {rows.view(), base.view(), scale.view()};
  const TensorView outputs[] = {before.view(), after.view()};
  Attributes attributes;
  attributes.Set("iterations", iterations);
  attributes.Set("eps", 0);
  device::ThreadPool pool({.num_threads = 1});
  conformance::RunKernel(
      kernel, {.inputs = inputs, .outputs = outputs, .attributes = &attributes}, pool);
  EXPECT_NEAR(before.ToFloat()[0], 0.5, 1e-6) << kernel.name;
  EXPECT_NEAR(before.ToFloat()[1], 0.75, 1e-6) << kernel.name;
  return after.ToFloat();
}

// The rows of pairs are (1/4, 3/4) and (1/2, 1/2), then columns are divided by 3/4 and 5/4.
TEST(StreamWeights, ByHand) {
  const float log3 = std::log(3.0f);
  const std::vector<float> mixes = {0, log3, 0, log3, 0, log3, 0, 0};
  for (const Kernel& kernel : StreamWeightsOp().kernels) {
    EXPECT_TRUE(conformance::AllClose(
        After(kernel, mixes, 1),
        std::vector<float>{1.0f / 3, 2.0f / 3, 1, 0.6f, 0.4f, 1.5f}, {.abs = 1e-6}))
        << kernel.name;
    const std::vector<float> after = After(kernel, mixes, 30);
    EXPECT_NEAR(after[0] + after[1], 1, 1e-5) << kernel.name;
    EXPECT_NEAR(after[0] + after[3], 1, 1e-5) << kernel.name;
  }
}

TEST(StreamWeights, CheckNamesTheMismatch) {
  const auto view = [](std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, DType::kF32, dims);
  };
  const auto check = [&](int64_t width, double iterations) {
    const TensorView inputs[] = {view({5, width}), view({width}), view({3})};
    const TensorView outputs[] = {view({5, 4}), view({5, 4, 5})};
    Attributes attributes;
    attributes.Set("iterations", iterations);
    return StreamWeightsOp().check(
        {.inputs = inputs, .outputs = outputs, .attributes = &attributes});
  };
  EXPECT_TRUE(check(24, 20).ok()) << check(24, 20).ToString();
  EXPECT_EQ(check(23, 20).message(),
            "stream_weights: rows of mixes must have 24 elements, got 23");
  EXPECT_FALSE(check(24, 0).ok());
}

}  // namespace
}  // namespace pagemill::ops
