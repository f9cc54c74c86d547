#include "cc/ops/latent_attention/latent_attention.h"

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/latent_attention/latent_case.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/testing/divided_attention.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

using ops::conformance::BitEqual;
using ops::conformance::LatentCase;
using ops::conformance::LatentOptions;

constexpr LatentOptions kOnTensorCores = {
    .heads = 4, .size = 48, .rope_size = 16, .bf16_elements = 16, .act = DType::kBF16};

TEST_P(GpuConformance, LatentAttention) {
  ops::CheckLatentAttentionConformance(OnGpu<LatentAttentionKernels>(ops::LatentAttentionOp()),
                                       GpuCapabilities());
}

TEST_P(GpuConformance, LatentAttentionInvariance) {
  ops::CheckLatentAttentionInvariance(OnGpu<LatentAttentionKernels>(ops::LatentAttentionOp()),
                                      GpuCapabilities());
}

// Three splits; the whole has more rows than are divided.
TEST_P(GpuConformance, LatentAttentionHasTheSameBitsHoweverItIsDivided) {
  const ops::OpDefinition op = OnGpu<LatentAttentionKernels>(ops::LatentAttentionOp());
  LatentOptions options = kOnTensorCores;
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
    options.dtype = dtype;
    CheckDivisions<LatentCase>(op, options, options.heads * options.size,
                               {.prompt = 1100, .tokens = 260});
  }
}

// NaN in a latent reaches the token that sees it, and none before.
TEST_P(GpuConformance, LatentAttentionConfinesNaN) {
  const ops::OpDefinition op = OnGpu<LatentAttentionKernels>(ops::LatentAttentionOp());
  constexpr int32_t kTokens = 40;
  const LatentOptions& options = kOnTensorCores;
  LatentCase c(options, {{.context = 0, .tokens = kTokens}});
  device::ThreadPool pool({.num_threads = 1});
  const std::vector<const ops::Kernel*> kernels = RoundingKernels(op, c.call());
  if (kernels.empty()) GTEST_SKIP() << "no kernel rounds activations here";
  for (const ops::Kernel* kernel : kernels) {
    std::vector<float> expected = c.Run(*kernel, pool);
    constexpr int32_t kLast = kTokens - 1;
    const int32_t block = c.call().batch->block_table[kLast / options.block_size];
    uint16_t& value = c.call().inputs[2].Row<uint16_t>(
        block)[kLast % options.block_size * (options.size + options.rope_size) + 5];
    const uint16_t before = std::exchange(value, uint16_t{0x7fc0});
    std::vector<float> y = c.Run(*kernel, pool);
    value = before;
    const size_t earlier = static_cast<size_t>(kLast * options.heads * options.size);
    EXPECT_TRUE(std::isnan(y[earlier + 5])) << kernel->name;
    y.resize(earlier);
    expected.resize(earlier);
    EXPECT_TRUE(BitEqual(y, expected)) << kernel->name;
  }
}

}  // namespace
}  // namespace pagemill::gpu
