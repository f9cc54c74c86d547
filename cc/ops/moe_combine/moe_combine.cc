#include "cc/ops/moe_combine/moe_combine.h"

#include <string>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {
namespace {

Status CheckMoeCombine(const OpCall& call) {
  OperandCheck check("moe_combine", call, /*inputs=*/2, /*outputs=*/1);
  check.Input(1, "weights", DType::kF32, "N,J");
  check.Input(0, "x", DType::kF32, "N,J,H*");
  check.Output(0, "y", DType::kF32, "N,H*");
  return check.Result();
}

constexpr KernelRow kRows[] = {
    {"moe_combine", "portable", 10, OnEveryCpu, moe_combine::RunPortable},
    {"moe_combine", "reference", 0, OnEveryCpu, moe_combine::RunReference},
};

constexpr OpDefinition kDefinition{"moe_combine", CheckMoeCombine, kRows};

}  // namespace

const OpDefinition& MoeCombineOp() { return kDefinition; }

}  // namespace pagemill::ops
