#include "cc/ops/activation/activation.h"

#include <cmath>

#include "cc/ops/activation/activation_row.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/row_split.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

Status CheckActivation(const OpCall& call) {
  OperandCheck check("activation", call, /*inputs=*/1, /*outputs=*/1);
  check.ActInput(0, "x", "N,F*");
  check.ActOutput(0, "y", "N,F*");
  check.IntegerAttribute("kind", /*fallback=*/-1, 0, kNumActivationKinds - 1);
  const double limit = call.attributes->Get("limit", 0);
  check.Require(std::isfinite(static_cast<float>(limit)) && limit >= 0,
                "attribute limit must be a finite number >= 0");
  const double lower = call.attributes->Get("lower", -limit);
  check.Require(std::isfinite(static_cast<float>(lower)) && lower <= limit,
                "attribute lower must be a finite number up to limit");
  return check.Result();
}

template <ActivationRowFunction kRow>
void Run(const OpCall& call, KernelContext& context) {
  const ActivationArgs args = ToActivationArgs(call);
  const int64_t size = args.x.RowElements();
  context.pool->ParallelFor(args.x.shape[0], RowsPerChunk(size),
                            [&](int64_t begin, int64_t end, int) {
                              for (int64_t i = begin; i < end; ++i) {
                                kRow({.x = args.x.Row<float>(i),
                                      .y = args.y.Row<float>(i),
                                      .size = size,
                                      .kind = args.kind,
                                      .limited = args.limit > 0,
                                      .limit = args.limit,
                                      .lower = args.lower});
                              }
                            });
}

constexpr F32Kernel kReference{.act_inputs = 0b1, .run = ActivationReference};

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"activation", "avx512", 30, OnAvx512, Run<ActivationRowAvx512>},
    {"activation", "avx2", 20, OnAvx2, Run<ActivationRowAvx2>},
#endif
    {"activation", "portable", 10, OnEveryCpu, Run<ActivationRowPortable>},
    WidenedReference<&kReference>("activation"),
};

constexpr AliasRule kAliases[] = {{.input = 0, .output = 0}};

constexpr OpDefinition kDefinition{"activation", CheckActivation, kKernels, kAliases};

}  // namespace

ActivationArgs ToActivationArgs(const OpCall& call) {
  const double limit = call.attributes->Get("limit", 0);
  return {.x = call.inputs[0],
          .y = call.outputs[0],
          .kind = static_cast<ActivationKind>(call.attributes->GetInt("kind", 0)),
          .limit = static_cast<float>(limit),
          .lower = static_cast<float>(call.attributes->Get("lower", -limit))};
}

const OpDefinition& ActivationOp() { return kDefinition; }

}  // namespace pagemill::ops
