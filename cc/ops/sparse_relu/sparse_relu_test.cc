#include "cc/ops/sparse_relu/sparse_relu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(SparseRelu, Conformance) {
  CheckSparseReluConformance(SparseReluOp(), device::DetectCapabilities());
}

// A row of mean 3 and deviation 2, cut at 4; one of equal elements; one with a NaN.
TEST(SparseRelu, ByHand) {
  conformance::TestTensor x(DType::kF32, {3, 4}), y(DType::kF32, {3, 4});
  x.Set(std::vector<float>{1, 5, 5, 1, 2, 2, 2, 2, 0, NAN, 1, 2});
  const TensorView inputs[] = {x.view()}, outputs[] = {y.view()};
  Attributes attributes;
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  EXPECT_EQ(SparseReluOp().check(call).message(),
            "sparse_relu: attribute deviations must be a finite number");
  attributes.Set("deviations", 0.5);
  ASSERT_TRUE(SparseReluOp().check(call).ok()) << SparseReluOp().check(call).ToString();
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel& kernel : SparseReluOp().kernels) {
    y.Poison();
    conformance::RunKernel(kernel, call, pool);
    const std::vector<float> result = y.ToFloat();
    EXPECT_EQ(std::vector<float>(result.begin(), result.begin() + 8),
              (std::vector<float>{0, 1, 1, 0, 0, 0, 0, 0}))
        << kernel.name;
    for (int i = 8; i < 12; ++i) EXPECT_TRUE(std::isnan(result[i])) << kernel.name << " " << i;
  }
}

}  // namespace
}  // namespace pagemill::ops
