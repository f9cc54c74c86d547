#include "cc/ops/attention/attention.h"

#include <cmath>
#include <cstdint>
#include <string>

#include "cc/ops/attention/attention_pages.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/paged_attention/paged_attention.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

constexpr int64_t kMaxHeadDim = 512;

Status CheckAttention(const OpCall& call) {
  const bool biased = call.inputs.size() > kAttentionBiases;
  OperandCheck check("attention", call, /*inputs=*/biased ? 4 : 3, /*outputs=*/1);
  check.ActInput(0, "q", "T,Q,D");
  check.ActInput(1, "k", "T,K,D");
  check.ActInput(2, "v", "T,K,D");
  check.ActOutput(0, "y", "T,Q,D");
  if (biased) CheckBiases(kAttentionBiases, check);
  if (!check.ok()) return check.Result();
  check.Require(call.batch != nullptr, "the check needs the batch");
  check.Require(check.Dim('D') >= 1 && check.Dim('D') <= kMaxHeadDim,
                "head dimension must be 1 to 512, got " + std::to_string(check.Dim('D')));
  const int64_t kv_heads = check.Dim('K');
  check.Require(kv_heads > 0 && check.Dim('Q') % kv_heads == 0,
                std::to_string(check.Dim('Q')) + " query heads are not a multiple of " +
                    std::to_string(kv_heads) + " KV heads");
  check.IntegerAttribute("causal", /*fallback=*/1, 0, 1);
  check.IntegerAttribute("window", /*fallback=*/0, 0, INT32_MAX);
  check.IntegerAttribute("grid_window", /*fallback=*/0, 0, INT32_MAX);
  if (!check.ok()) return check.Result();
  const Attributes& attributes = *call.attributes;
  check.Require(attributes.GetInt("grid_window", 0) == 0 ||
                    (attributes.GetInt("causal", 1) == 0 && attributes.GetInt("window", 0) == 0),
                "grid_window needs causal=0, and no window");
  const double scale = attributes.Get("scale", 0);
  check.Require(scale > 0 && std::isfinite(scale), "attribute scale must be a number above 0");
  return check.Result();
}

template <const PageKernels* kPages>
constexpr Kernel OverPages(int32_t priority, Precision activations = Precision::kF32) {
  return {.op = "attention",
          .name = kPages->attend,
          .priority = priority,
          .supports = [](const device::Capabilities& caps,
                         const OpCall& call) { return SupportsPages(*kPages, caps, call); },
          .run = [](const OpCall& call,
                    KernelContext& context) { RunOverPages(*kPages, call, context); },
          .workspace_bytes =
              [](const OpCall& call, int32_t num_threads) {
                return PagesWorkspaceBytes(*kPages, call, num_threads);
              },
          .activations = activations,
          .plan = &kPagesPlan};
}

constexpr F32Kernel kReference{.act_inputs = 0b111, .run = AttentionReference};
constexpr PageKernels kPortable{.write = "portable", .attend = "portable"};
#if defined(__x86_64__)
constexpr PageKernels kAvx2{.write = "avx2", .attend = "avx2"};
constexpr PageKernels kAvx512{.write = "avx512", .attend = "avx512"};
constexpr PageKernels kAvx512Bf16{
    .write = "avx512", .attend = "avx512_bf16", .pages = DType::kBF16};
constexpr PageKernels kAmxBf16{.write = "avx512", .attend = "amx_bf16", .pages = DType::kBF16};
#endif

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    OverPages<&kAmxBf16>(50, Precision::kBf16),
    OverPages<&kAvx512Bf16>(40, Precision::kBf16),
    OverPages<&kAvx512>(30),
    OverPages<&kAvx2>(20),
#endif
    OverPages<&kPortable>(10),
    WidenedReference<&kReference>("attention"),
};

constexpr OpDefinition kDefinition{"attention", CheckAttention, kKernels};

}  // namespace

const OpDefinition& AttentionOp() { return kDefinition; }

}  // namespace pagemill::ops
