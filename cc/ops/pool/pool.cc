#include "cc/ops/pool/pool.h"

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

Status CheckPool(const OpCall& call) {
  OperandCheck check("pool", call, /*inputs=*/1, /*outputs=*/1);
  check.IntegerAttribute("kind", /*fallback=*/-1, 0, 4);
  if (!check.ok()) return check.Result();
  const bool all = ToPoolArgs(call).kind == PoolKind::kAll;
  check.ActInput(0, "x", all ? "N,H*" : "T,H*");
  check.ActOrF32Output(0, "y", all ? "N,H*" : "R,H*");
  check.IntegerAttribute("normalize", /*fallback=*/0, 0, 1);
  return check.Result();
}

constexpr F32Kernel kReference{.act_inputs = 0b1, .run = PoolReference};

constexpr Kernel kKernels[] = {
    {"pool", "portable", 10, OnEveryCpu, PoolPortable},
    WidenedReference<&kReference>("pool"),
};

constexpr OpDefinition kDefinition{"pool", CheckPool, kKernels};

}  // namespace

PoolArgs ToPoolArgs(const OpCall& call) {
  return {.x = call.inputs[0],
          .y = call.outputs[0],
          .batch = call.batch,
          .kind = static_cast<PoolKind>(call.attributes->GetInt("kind", 0)),
          .normalize = call.attributes->GetInt("normalize", 0) != 0};
}

const OpDefinition& PoolOp() { return kDefinition; }

}  // namespace pagemill::ops
