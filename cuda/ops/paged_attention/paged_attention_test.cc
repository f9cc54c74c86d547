#include "cc/ops/paged_attention/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/paged_attention/attention_case.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/testing/divided_attention.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

using ops::conformance::AllClose;
using ops::conformance::AttentionCase;
using ops::conformance::AttentionOptions;
using ops::conformance::BitEqual;
using ops::conformance::PagedRequest;
using ops::conformance::Tolerance;

TEST_P(GpuConformance, PagedAttention) {
  ops::CheckPagedAttentionConformance(OnGpu<PagedAttentionKernels>(ops::PagedAttentionOp()),
                                      GpuCapabilities());
}

// Values are below 1.75. Weights, states of chunks of keys and results are rounded to bf16, as are
// the results that are expected.
constexpr Tolerance kRounded = {.abs = 1.75 * (ops::kPagedAttentionRounding + 0x1p-9),
                                .rel = 0x1p-7};
// If all keys weigh the same, weights are exact: a missing key shows.
constexpr Tolerance kEvenWeights = {.abs = 0x1p-10, .rel = 0x1p-7};

// `kernels` with activations in bf16, for random queries, and for queries that make weights equal.
void CheckBf16(const ops::OpDefinition& op, const std::vector<const ops::Kernel*>& kernels,
               AttentionOptions options, const std::vector<PagedRequest>& requests) {
  device::ThreadPool pool({.num_threads = 1});
  for (const bool even : {false, true}) {
    options.zero_queries = even;
    AttentionCase c(options, requests);
    const std::vector<float> expected = c.Run(ops::conformance::ReferenceKernel(op), pool);
    for (const ops::Kernel* kernel : kernels) {
      EXPECT_TRUE(AllClose(c.Run(*kernel, pool), expected, even ? kEvenWeights : kRounded))
          << kernel->name << ", head_dim " << options.head_dim << ", zero queries " << even;
    }
  }
}

// What kernels of libraries take: activations in bf16, keys in rows. Prompts end within tiles of
// rows and of keys, alone and beside requests that decode.
TEST_P(GpuConformance, PagedAttentionOfPromptsWithKeysInRows) {
  const ops::OpDefinition op = OnGpu<PagedAttentionKernels>(ops::PagedAttentionOp());
  for (const int64_t head_dim : {64, 128, 256}) {
    AttentionOptions options = {
        .q_heads = 4, .kv_heads = 2, .head_dim = head_dim, .act = DType::kBF16};
    options.keys_in_rows = true;
    const auto kernels = [&] {
      const AttentionCase shape(options, {{.context = 0, .tokens = 1}});
      return ops::conformance::SupportedKernels(op, GpuCapabilities(), shape.call());
    };
    EXPECT_GE(kernels().size(), 2u);  // one beside the reference
    CheckBf16(op, kernels(), options, {{.context = 0, .tokens = 300}});
    CheckBf16(op, kernels(), options, {{.context = 71, .tokens = 129}});
    CheckBf16(op, kernels(), options, {{700, 1}, {0, 150}, {90, 0}, {33, 128}, {5, 3}});
    // More tiles than a GPU has multiprocessors: the emulation takes minutes for these.
    options.q_heads = 32;
    options.kv_heads = 8;
    options.block_size = 32;
    std::vector<const ops::Kernel*> fast = kernels();
    std::erase_if(fast, [](const ops::Kernel* k) { return k->activations == ops::Precision::kF32; });
    if (fast.empty()) continue;
    CheckBf16(op, fast, options, {{.context = 0, .tokens = 1030}});
    CheckBf16(op, fast, options, {{900, 1}, {0, 200}, {64, 520}, {3000, 1}, {1500, 2}, {0, 385}});
    CheckBf16(op, fast, options, {{20, 1}, {900, 17}, {3000, 1}, {0, 90}, {511, 1}});
  }
}

TEST_P(GpuConformance, PagedAttentionHasInstructionsOfItsGpu) {
  const ops::OpDefinition op = OnGpu<PagedAttentionKernels>(ops::PagedAttentionOp());
  const device::Capabilities caps = GpuCapabilities();
  const AttentionCase c({}, {{.context = 0, .tokens = 1}});
  std::vector<std::string_view> names;
  for (const ops::Kernel& kernel : op.kernels) {
    if (kernel.name.ends_with("_core") && kernel.supports(caps, c.call())) {
      names.push_back(kernel.name);
    }
  }
  EXPECT_EQ(names.size(), caps.gpu.compute_major == 11 ? 0u : 1u);  // gfx11 has none
}

// An infinite value of the last token makes one element of its own result NaN, and changes no bits
// of the others, which are of the same tile.
TEST_P(GpuConformance, PagedAttentionConfinesValuesThatAreNotFinite) {
  const ops::OpDefinition op = OnGpu<PagedAttentionKernels>(ops::PagedAttentionOp());
  constexpr int32_t kTokens = 40;
  const AttentionOptions options = {.q_heads = 1, .kv_heads = 1, .head_dim = 32};
  AttentionCase c(options, {{.context = 0, .tokens = kTokens}});
  device::ThreadPool pool({.num_threads = 1});
  for (const ops::Kernel* kernel :
       ops::conformance::SupportedKernels(op, GpuCapabilities(), c.call())) {
    if (kernel->activations == ops::Precision::kF32) continue;
    std::vector<float> expected = c.Run(*kernel, pool);
    const int32_t block = c.batch().block_table[kTokens / options.block_size];
    uint16_t& value = c.call().inputs[1].Row<uint16_t>(
        block)[(options.block_size + (kTokens - 1) % options.block_size) * options.head_dim + 5];
    const uint16_t before = std::exchange(value, uint16_t{0x7f80});
    std::vector<float> y = c.Run(*kernel, pool);
    value = before;
    const size_t changed = (kTokens - 1) * options.head_dim + 5;
    EXPECT_FALSE(std::isfinite(y[changed])) << kernel->name;
    y[changed] = expected[changed] = 0;
    EXPECT_TRUE(BitEqual(y, expected)) << kernel->name;
  }
}

// Three splits; the whole has tiles of many rows.
TEST_P(GpuConformance, PagedAttentionHasTheSameBitsHoweverItIsDivided) {
  const ops::OpDefinition op = OnGpu<PagedAttentionKernels>(ops::PagedAttentionOp());
  for (const int64_t head_dim : {32, 80}) {
    AttentionOptions options = {.q_heads = 4, .kv_heads = 2, .head_dim = head_dim, .sinks = true};
    options.window = head_dim == 32 ? 0 : 620;
    CheckDivisions<AttentionCase>(op, options, options.q_heads * head_dim,
                                  {.prompt = 1100, .tokens = 40});
  }
  const AttentionOptions large = {.q_heads = 8, .kv_heads = 1, .head_dim = 208};
  const AttentionCase one(large, {{.context = 0, .tokens = 1}});
  const auto is_fast = [&](const ops::Kernel& kernel) {
    return kernel.name == "tensor_core" && kernel.supports(GpuCapabilities(), one.call());
  };
  if (std::ranges::none_of(op.kernels, is_fast)) return;
  CheckDivisions<AttentionCase>(op, large, large.q_heads * large.head_dim,
                                {.prompt = 1100, .tokens = 9});
}

}  // namespace
}  // namespace pagemill::gpu
