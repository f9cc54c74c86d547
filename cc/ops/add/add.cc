#include "cc/ops/add/add.h"

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {
namespace {

Status CheckAdd(const OpCall& call) {
  OperandCheck check("add", call, /*inputs=*/2, /*outputs=*/1);
  check.ActInput(0, "a", "N,H*");
  check.ActOutput(0, "y", "N,H*");
  if (!check.ok()) return check.Result();
  if (call.inputs[1].rank == 1) {
    check.Input(1, "b", DType::kF32, "H");
  } else {
    check.ActInput(1, "b", "N,H*");
  }
  return check.Result();
}

constexpr Kernel kKernels[] = {
    {"add", "portable", 10, OnEveryCpu, AddPortable},
    WidenedReference<&kAddReference>("add"),
};

constexpr AliasRule kAliases[] = {{.input = 0, .output = 0}};

constexpr OpDefinition kDefinition{"add", CheckAdd, kKernels, kAliases};

}  // namespace

AddArgs ToAddArgs(const OpCall& call) {
  return {.a = call.inputs[0], .b = call.inputs[1], .y = call.outputs[0]};
}

const OpDefinition& AddOp() { return kDefinition; }

}  // namespace pagemill::ops
