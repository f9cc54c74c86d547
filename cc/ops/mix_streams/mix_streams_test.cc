#include "cc/ops/mix_streams/mix_streams.h"

#include <gtest/gtest.h>

#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

using conformance::TestTensor;

TEST(MixStreams, Conformance) {
  CheckMixStreamsConformance(MixStreamsOp(), device::DetectCapabilities());
}

// Two streams of two elements and a branch become two streams.
TEST(MixStreams, ByHand) {
  TestTensor x(DType::kF32, {1, 4}), weights(DType::kF32, {1, 2, 3}), y(DType::kF32, {1, 2});
  TestTensor z(DType::kF32, {1, 4});
  x.Set(std::vector<float>{1, 2, 10, 20});
  weights.Set(std::vector<float>{1, 2, 0, 0, 1, 3});
  y.Set(std::vector<float>{100, 200});
  const TensorView inputs[] = {x.view(), weights.view(), y.view()}, outputs[] = {z.view()};
  const Attributes attributes;
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel& kernel : MixStreamsOp().kernels) {
    z.Poison();
    conformance::RunKernel(
        kernel, {.inputs = inputs, .outputs = outputs, .attributes = &attributes}, pool);
    EXPECT_EQ(z.ToFloat(), (std::vector<float>{21, 42, 310, 620})) << kernel.name;
  }
}

TEST(MixStreams, CheckNamesTheMismatch) {
  const auto view = [](std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, DType::kF32, dims);
  };
  const auto check = [&](int64_t row, int64_t branch, int64_t result) {
    const TensorView inputs[] = {view({5, row}), view({5, 2, 4}), view({5, branch})};
    const TensorView outputs[] = {view({5, result})};
    const Attributes attributes;
    return MixStreamsOp().check({.inputs = inputs, .outputs = outputs, .attributes = &attributes});
  };
  EXPECT_TRUE(check(24, 8, 16).ok()) << check(24, 8, 16).ToString();
  EXPECT_EQ(check(25, 8, 16).message(),
            "mix_streams: rows of x must have 3 streams of one width, rows of z 2, got rows of 25 "
            "and 16");
  EXPECT_FALSE(check(24, 7, 16).ok());
  EXPECT_FALSE(check(24, 8, 8).ok());
}

}  // namespace
}  // namespace pagemill::ops
