#include "cc/ops/head_linear/head_linear.h"

#include <cmath>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

using ops::conformance::Random;
using ops::conformance::TestTensor;

TEST_P(GpuConformance, HeadLinear) {
  ops::CheckHeadLinearConformance(OnGpu<HeadLinearKernels>(ops::HeadLinearOp()), GpuCapabilities());
}

// Blocks are converted exactly; sums of 64 products of at most 1 are rounded.
TEST_P(GpuConformance, HeadLinearOfBlocksThatAreConverted) {
  const ops::OpDefinition op = OnGpu<HeadLinearKernels>(ops::HeadLinearOp());
  Random random(3);
  device::ThreadPool pool({.num_threads = 1});
  for (const DType dtype : {DType::kIQ4_NL, DType::kMxfp4}) {
    TestTensor x(DType::kF32, {5, 3, 64}), w(dtype, {3, 11, 64}), y(DType::kF32, {5, 3, 11});
    x.FillUniform(random, -1, 1);
    w.FillUniform(random, -1, 1);
    const TensorView inputs[] = {x.view(), w.view()}, outputs[] = {y.view()};
    const ops::Attributes attributes;
    const ops::OpCall call = {.inputs = inputs, .outputs = outputs, .attributes = &attributes};
    ops::conformance::RunKernel(ops::conformance::ReferenceKernel(op), call, pool);
    const std::vector<float> expected = y.ToFloat();
    const auto kernels = ops::conformance::SupportedKernels(op, GpuCapabilities(), call);
    ASSERT_EQ(kernels.size(), 2u) << "besides the reference";
    y.Poison();
    ops::conformance::RunKernel(*kernels[0], call, pool);
    const std::vector<float> got = y.ToFloat();
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 64 * 64 * 0x1p-24);
  }
}

}  // namespace
}  // namespace pagemill::gpu
