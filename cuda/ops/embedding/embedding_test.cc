#include "cc/ops/embedding/embedding.h"

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

TEST_P(GpuConformance, Embedding) {
  ops::CheckEmbeddingConformance(OnGpu<EmbeddingKernels>(ops::EmbeddingOp()), GpuCapabilities());
}

// Exactly: one becomes q8_0, the other words.
TEST_P(GpuConformance, EmbeddingOfBlocksThatAreConverted) {
  const ops::OpDefinition op = OnGpu<EmbeddingKernels>(ops::EmbeddingOp());
  Random random(3);
  device::ThreadPool pool({.num_threads = 1});
  for (const DType dtype : {DType::kIQ4_NL, DType::kMxfp4}) {
    TestTensor ids(DType::kI32, {4}), table(dtype, {9, 96}), y(DType::kF32, {4, 96});
    ids.SetInt(std::vector<int32_t>{8, 0, 3, 3});
    table.FillUniform(random, -1, 1);
    const TensorView inputs[] = {ids.view(), table.view()}, outputs[] = {y.view()};
    const ops::Attributes attributes;
    const ops::OpCall call = {.inputs = inputs, .outputs = outputs, .attributes = &attributes};
    ops::conformance::RunKernel(ops::conformance::ReferenceKernel(op), call, pool);
    const std::vector<float> expected = y.ToFloat();
    const auto kernels = ops::conformance::SupportedKernels(op, GpuCapabilities(), call);
    ASSERT_EQ(kernels.size(), 2u) << "besides the reference";
    y.Poison();
    ops::conformance::RunKernel(*kernels[0], call, pool);
    EXPECT_TRUE(ops::conformance::BitEqual(y.ToFloat(), expected));
  }
}

}  // namespace
}  // namespace pagemill::gpu
