#include "cc/ops/attention/attention.h"

#include <cmath>
#include <string>

#include "cc/ops/attention/attention_pages.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

constexpr int64_t kMaxHeadDim = 512;

Status CheckAttention(const OpCall& call) {
  OperandCheck check("attention", call, /*inputs=*/3, /*outputs=*/1);
  check.ActInput(0, "q", "T,Q,D");
  check.ActInput(1, "k", "T,K,D");
  check.ActInput(2, "v", "T,K,D");
  check.ActOutput(0, "y", "T,Q,D");
  if (!check.ok()) return check.Result();
  check.Require(call.batch != nullptr, "needs the batch when it is checked");
  check.Require(check.Dim('D') >= 1 && check.Dim('D') <= kMaxHeadDim,
                "head dimension must be 1 to 512, got " + std::to_string(check.Dim('D')));
  const int64_t kv_heads = check.Dim('K');
  check.Require(kv_heads > 0 && check.Dim('Q') % kv_heads == 0,
                std::to_string(check.Dim('Q')) + " query heads are no multiple of " +
                    std::to_string(kv_heads) + " KV heads");
  check.IntegerAttribute("causal", /*fallback=*/1, 0, 1);
  if (!check.ok()) return check.Result();
  const double scale = call.attributes->Get("scale", 0);
  check.Require(scale > 0 && std::isfinite(scale), "attribute scale must be a number above 0");
  return check.Result();
}

constexpr char kPortable[] = "portable";

template <const char* kName>
void Run(const OpCall& call, KernelContext& context) {
  RunOverPages(kName, call, context);
}

constexpr Kernel OverPages(std::string_view name, int32_t priority,
                           void (*run)(const OpCall&, KernelContext&),
                           bool (*supports)(const device::Capabilities&, const OpCall&)) {
  return {.op = "attention",
          .name = name,
          .priority = priority,
          .supports = supports,
          .run = run,
          .workspace_bytes = AttentionPagesBytes,
          .plan = &kAttentionPagesPlan};
}

constexpr F32Kernel kReference{.act_inputs = 0b111, .run = AttentionReference};

#if defined(__x86_64__)
constexpr char kAvx512[] = "avx512";
constexpr char kAvx2[] = "avx2";
#endif

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    OverPages(kAvx512, 30, Run<kAvx512>, OnAvx512),
    OverPages(kAvx2, 20, Run<kAvx2>, OnAvx2),
#endif
    OverPages(kPortable, 10, Run<kPortable>, OnEveryCpu),
    WidenedReference<&kReference>("attention"),
};

constexpr OpDefinition kDefinition{"attention", CheckAttention, kKernels};

}  // namespace

const OpDefinition& AttentionOp() { return kDefinition; }

}  // namespace pagemill::ops
