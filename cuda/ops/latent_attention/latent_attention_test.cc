#include "cuda/ops/kernels.h"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/latent_attention/latent_attention.h"
#include "cc/ops/latent_attention/latent_case.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

using ops::conformance::BitEqual;
using ops::conformance::LatentCase;
using ops::conformance::LatentOptions;
using ops::conformance::PagedRequest;

TEST_P(GpuConformance, LatentAttention) {
  ops::CheckLatentAttentionConformance(OnGpu<LatentAttentionKernels>(ops::LatentAttentionOp()),
                                       GpuCapabilities());
}

TEST_P(GpuConformance, LatentAttentionInvariance) {
  ops::CheckLatentAttentionInvariance(OnGpu<LatentAttentionKernels>(ops::LatentAttentionOp()),
                                      GpuCapabilities());
}

// Rows of the first request; its queries are those of `context` and the `tokens` behind it.
std::vector<float> RowsOfFirst(const ops::Kernel& kernel, const LatentOptions& options,
                               std::vector<PagedRequest> requests) {
  device::ThreadPool pool({.num_threads = 1});
  const int64_t rows = requests[0].tokens;
  LatentCase c(options, std::move(requests));
  std::vector<float> y = c.Run(kernel, pool);
  y.resize(static_cast<size_t>(rows * options.heads * options.size));
  return y;
}

// The last tokens of a prompt of three splits have the same bits in tiles that walk them, and merged
// from states of splits, alone and beside other requests.
TEST_P(GpuConformance, LatentAttentionHasTheSameBitsHoweverItIsDivided) {
  const ops::OpDefinition op = OnGpu<LatentAttentionKernels>(ops::LatentAttentionOp());
  constexpr int32_t kPrompt = 1100, kTokens = 260;  // more rows than are divided
  const LatentOptions options = {
      .heads = 4, .size = 48, .rope_size = 16, .act = DType::kBF16};
  const int64_t row = options.heads * options.size;
  const LatentCase shape(options, {{.context = 0, .tokens = 1}});
  for (const ops::Kernel* kernel :
       ops::conformance::SupportedKernels(op, GpuCapabilities(), shape.call())) {
    if (kernel->activations == ops::Precision::kF32) continue;
    const std::vector<float> whole =
        RowsOfFirst(*kernel, options, {{.context = kPrompt - kTokens, .tokens = kTokens}});
    for (const int32_t tokens : {1, 9}) {
      const std::span<const float> expected =
          std::span(whole).last(static_cast<size_t>(tokens * row));
      const PagedRequest last = {.context = kPrompt - tokens, .tokens = tokens};
      EXPECT_TRUE(BitEqual(RowsOfFirst(*kernel, options, {last}), expected)) << tokens;
      EXPECT_TRUE(
          BitEqual(RowsOfFirst(*kernel, options, {last, {.context = 20, .tokens = 40}, {700, 2}}),
                   expected))
          << tokens << " beside others";
    }
  }
}

}  // namespace
}  // namespace pagemill::gpu
