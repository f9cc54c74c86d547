#include "cc/ops/pool/pool.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(Pool, Conformance) { CheckPoolConformance(PoolOp(), device::DetectCapabilities()); }

// The reference on a case computed by hand.
TEST(Pool, MeanAndNormByHand) {
  const int32_t query_start[] = {0, 2, 3};
  const BatchView batch{{.num_tokens = 3, .num_requests = 2, .query_start = query_start}, {}};
  conformance::TestTensor x(DType::kF32, {3, 2}), y(DType::kF32, {2, 2});
  x.Set(std::vector<float>{1, 2, 5, 6, 0, 0});
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel& kernel : PoolOp().kernels) {
    for (const auto& [normalize, expected] : {std::pair(0, std::vector<float>{3, 4, 0, 0}),
                                              std::pair(1, std::vector<float>{0.6f, 0.8f, 0, 0})}) {
      Attributes attributes;
      attributes.Set("kind", 0);
      attributes.Set("normalize", normalize);
      const TensorView inputs[] = {x.view()}, outputs[] = {y.view()};
      conformance::RunKernel(
          kernel,
          {.inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch}, pool);
      EXPECT_TRUE(conformance::AllClose(y.ToFloat(), expected, {.abs = 1e-7})) << kernel.name;
    }
  }
}

}  // namespace
}  // namespace pagemill::ops
