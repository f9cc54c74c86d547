#include "cc/ops/gated_activation/gated_activation.h"

#include <cmath>

#include "cc/ops/activation/activation_row.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/row_split.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

Status CheckGatedActivation(const OpCall& call) {
  OperandCheck check("gated_activation", call, /*inputs=*/2, /*outputs=*/1);
  check.ActInput(0, "gate", "N,F*");
  check.ActInput(1, "up", "N,F*");
  check.ActOutput(0, "y", "N,F*");
  check.IntegerAttribute("kind", /*fallback=*/-1, 0, kNumActivationKinds - 1);
  const double limit = call.attributes->Get("limit", 0);
  const double offset = call.attributes->Get("up_offset", 0);
  check.Require(std::isfinite(static_cast<float>(limit)) && limit >= 0,
                "attribute limit must be a finite number >= 0");
  check.Require(std::isfinite(static_cast<float>(offset)) && (limit > 0 || offset == 0),
                "attribute up_offset must be a finite number, and 0 without a limit");
  return check.Result();
}

template <ActivationRowFunction kRow>
void Run(const OpCall& call, KernelContext& context) {
  const GatedActivationArgs args = ToGatedActivationArgs(call);
  const int64_t size = args.gate.RowElements();
  context.pool->ParallelFor(args.gate.shape[0], RowsPerChunk(size),
                            [&](int64_t begin, int64_t end, int) {
                              for (int64_t i = begin; i < end; ++i) {
                                kRow({.x = args.gate.Row<float>(i),
                                      .factor = args.up.Row<float>(i),
                                      .y = args.y.Row<float>(i),
                                      .size = size,
                                      .kind = args.kind,
                                      .limited = args.limit > 0,
                                      .limit = args.limit,
                                      .offset = args.up_offset});
                              }
                            });
}

constexpr F32Kernel kReference{.act_inputs = 0b11, .run = GatedActivationReference};

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"gated_activation", "avx512", 30, OnAvx512, Run<ActivationRowAvx512>},
    {"gated_activation", "avx2", 20, OnAvx2, Run<ActivationRowAvx2>},
#endif
    {"gated_activation", "portable", 10, OnEveryCpu, Run<ActivationRowPortable>},
    WidenedReference<&kReference>("gated_activation"),
};

constexpr AliasRule kAliases[] = {{.input = 0, .output = 0}};

constexpr OpDefinition kDefinition{"gated_activation", CheckGatedActivation, kKernels, kAliases};

}  // namespace

GatedActivationArgs ToGatedActivationArgs(const OpCall& call) {
  return {.gate = call.inputs[0],
          .up = call.inputs[1],
          .y = call.outputs[0],
          .kind = static_cast<ActivationKind>(call.attributes->GetInt("kind", 0)),
          .limit = static_cast<float>(call.attributes->Get("limit", 0)),
          .up_offset = static_cast<float>(call.attributes->Get("up_offset", 0))};
}

const OpDefinition& GatedActivationOp() { return kDefinition; }

}  // namespace pagemill::ops
