#include "cc/ops/attention/attention.h"

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

using ops::conformance::TestTensor;

TEST_P(GpuConformance, Attention) {
  ops::CheckAttentionConformance(OnGpu<AttentionKernels>(ops::AttentionOp()), GpuCapabilities());
}

// NaN in a value reaches the token that sees it, and none before.
TEST_P(GpuConformance, AttentionConfinesNaN) {
  constexpr int64_t kTokens = 70, kSize = 32;
  const ops::OpDefinition op = OnGpu<AttentionKernels>(ops::AttentionOp());
  ops::conformance::Random random(5);
  std::vector<TestTensor> tensors;
  std::vector<TensorView> views;
  for (int i = 0; i < 4; ++i) {
    tensors.emplace_back(DType::kBF16, std::initializer_list<int64_t>{kTokens, 1, kSize});
    tensors.back().FillUniform(random, -1, 1);
    views.push_back(tensors.back().view());
  }
  const int32_t query_start[] = {0, kTokens};
  ops::BatchView batch;
  batch.num_tokens = kTokens;
  batch.num_requests = 1;
  batch.query_start = query_start;
  ops::Attributes attributes;
  attributes.Set("scale", 0.2);
  attributes.Set("causal", 1);
  const ops::OpCall call = {.inputs = {views.data(), 3},
                            .outputs = {&views[3], 1},
                            .attributes = &attributes,
                            .batch = &batch};
  device::ThreadPool pool({.num_threads = 1});
  const auto run = [&](const ops::Kernel& kernel) {
    tensors[3].Poison();
    ops::conformance::RunKernel(kernel, call, pool);
    return tensors[3].ToFloat();
  };
  for (const ops::Kernel* kernel :
       ops::conformance::SupportedKernels(op, GpuCapabilities(), call)) {
    std::vector<float> expected = run(*kernel);
    uint16_t& value = views[2].Row<uint16_t>(kTokens - 1)[5];
    const uint16_t before = std::exchange(value, uint16_t{0x7fc0});
    std::vector<float> y = run(*kernel);
    value = before;
    constexpr size_t kEarlier = (kTokens - 1) * kSize;
    EXPECT_TRUE(std::isnan(y[kEarlier + 5])) << kernel->name;
    y.resize(kEarlier);
    expected.resize(kEarlier);
    EXPECT_TRUE(ops::conformance::BitEqual(y, expected)) << kernel->name;
  }
}

}  // namespace
}  // namespace pagemill::gpu
