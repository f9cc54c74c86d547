// `paged_attention` over emulated AMX tiles: conformance, and equal bits of a row in tiles and in
// vectors.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/kv_page.h"
#include "cc/ops/paged_attention/attention_case.h"
#include "cc/ops/paged_attention/attention_driver.h"
#include "cc/ops/paged_attention/emulated_attention.h"
#include "cc/ops/paged_attention/paged_attention.h"

namespace pagemill::ops {
namespace {

#if defined(__x86_64__)
constexpr Kernel kEmulatedKernel = {
    "paged_attention",
    "emulated amx",
    50,
    [](const device::Capabilities& caps, const OpCall& call) {
      const DType cache = call.inputs[1].dtype;
      return HasF32Activations(call) && !KeysInRows(call) && caps.cpu.avx512_bf16 &&
             caps.cpu.avx512_vbmi && caps.cpu.avx512_vnni && call.batch->block_size % 16 == 0 &&
             (cache == DType::kBF16 || cache == DType::kF8E4M3 || HasKvScales(cache));
    },
    [](const OpCall& call, KernelContext& context) {
      RunAttention(kEmulatedAttentionAmx, call, context);
    },
    AttentionWorkspaceBytes,
    Precision::kBf16,
    nullptr,
    nullptr,
    &kAttentionPlan};

TEST(AttentionTiles, Conformance) {
  const Kernel kernels[] = {kEmulatedKernel, conformance::ReferenceKernel(PagedAttentionOp())};
  const OpDefinition op{"paged_attention", PagedAttentionOp().check, kernels};
  CheckPagedAttentionConformance(op, device::DetectCapabilities());
}

TEST(AttentionTiles, Invariance) {
  const Kernel kernels[] = {kEmulatedKernel, conformance::ReferenceKernel(PagedAttentionOp())};
  const OpDefinition op{"paged_attention", PagedAttentionOp().check, kernels};
  CheckPagedAttentionInvariance(op, device::DetectCapabilities());
}

// With tiles of 8 quads of dimensions, and of 16.
TEST(AttentionTiles, IntegersMatchVnni) {
  const device::Capabilities caps = device::DetectCapabilities();
  device::ThreadPool pool({.num_threads = 1});
  for (const auto& [head_dim, dtype] : {std::pair<int64_t, DType>{80, DType::kI8},
                                        {64, DType::kI8},
                                        {120, DType::kI8},
                                        {80, DType::kU4},
                                        {64, DType::kU4},
                                        {120, DType::kK8V4},
                                        {64, DType::kK8V4}}) {
    conformance::AttentionCase c(
        {.q_heads = 4, .kv_heads = 2, .head_dim = head_dim, .dtype = dtype, .window = 290},
        {{.context = 270, .tokens = 41}});
    if (!kEmulatedKernel.supports(caps, c.call())) GTEST_SKIP() << "needs AVX-512";
    const std::vector<float> tiles = c.Run(kEmulatedKernel, pool);
    int compared = 0;
    for (const Kernel& kernel : PagedAttentionOp().kernels) {
      if (kernel.name != "avx512_vnni") continue;
      EXPECT_TRUE(conformance::BitEqual(tiles, c.Run(kernel, pool))) << head_dim;
      ++compared;
    }
    EXPECT_EQ(compared, 1);
  }
}
#endif

// Every kernel of this machine and the emulated one.
std::vector<const Kernel*> AllKernels(const OpCall& call) {
  const device::Capabilities caps = device::DetectCapabilities();
  std::vector<const Kernel*> kernels =
      conformance::SupportedKernels(PagedAttentionOp(), caps, call);
#if defined(__x86_64__)
  if (kEmulatedKernel.supports(caps, call)) kernels.push_back(&kEmulatedKernel);
#endif
  return kernels;
}

// The last token's value is infinite: the rows before it, which do not see it, stay as they were.
TEST(AttentionTiles, AnInfiniteValueAffectsOnlyRowsThatSeeIt) {
  conformance::AttentionCase c({.q_heads = 1, .kv_heads = 1, .head_dim = 32},
                               {{.context = 0, .tokens = 40}});
  TensorView cache = c.call().inputs[1];
  uint16_t* value = cache.Row<uint16_t>(c.batch().block_table[39 / 16]) + (16 + 39 % 16) * 32;
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel : AllKernels(c.call())) {
    value[3] = 0x3f80;
    std::vector<float> before = c.Run(*kernel, pool);
    value[3] = 0x7f80;
    std::vector<float> after = c.Run(*kernel, pool);
    EXPECT_FALSE(std::isfinite(after[39 * 32 + 3])) << kernel->name;
    before.resize(39 * 32);
    after.resize(39 * 32);
    EXPECT_TRUE(conformance::BitEqual(after, before)) << kernel->name;
  }
}

}  // namespace
}  // namespace pagemill::ops
