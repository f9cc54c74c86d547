#include "cc/ops/add/add.h"

#include "cc/ops/operand_check.h"

namespace pagemill::ops {
namespace {

Status CheckAdd(const OpCall& call) {
  OperandCheck check("add", call, /*inputs=*/2, /*outputs=*/1);
  check.Input(0, "a", DType::kF32, "N,H*");
  check.Output(0, "y", DType::kF32, "N,H*");
  if (!check.ok()) return check.Result();
  check.Input(1, "b", DType::kF32, call.inputs[1].rank == 1 ? "H" : "N,H*");
  return check.Result();
}

bool Always(const device::Capabilities&, const OpCall&) { return true; }

constexpr KernelRow kRows[] = {
    {"add", "portable", 10, Always, AddPortable},
    {"add", "reference", 0, Always, AddReference},
};

constexpr AliasRule kAliases[] = {{.input = 0, .output = 0}};

constexpr OpDefinition kDefinition{"add", CheckAdd, kRows, kAliases};

}  // namespace

AddArgs ToAddArgs(const OpCall& call) {
  return {.a = call.inputs[0], .b = call.inputs[1], .y = call.outputs[0]};
}

const OpDefinition& AddOp() { return kDefinition; }

}  // namespace pagemill::ops
