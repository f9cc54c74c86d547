#include "cc/ops/moe_combine/moe_combine.h"

#include <string>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

Status CheckMoeCombine(const OpCall& call) {
  OperandCheck check("moe_combine", call, /*inputs=*/2, /*outputs=*/1);
  check.Input(1, "weights", DType::kF32, "N,J");
  const bool shared = call.inputs.size() > 0 && call.outputs.size() > 0 &&
                      moe_combine::ChoiceStep(call) == 0;
  check.ActInput(0, "x", shared ? "N,H*" : "N,J,H*");
  check.ActOutput(0, "y", "N,H*");
  return check.Result();
}

constexpr F32Kernel kReference{.act_inputs = 0b1, .run = moe_combine::RunReference};

constexpr Kernel kKernels[] = {
    {"moe_combine", "portable", 10, OnEveryCpu, moe_combine::RunPortable},
    WidenedReference<&kReference>("moe_combine"),
};

constexpr OpDefinition kDefinition{"moe_combine", CheckMoeCombine, kKernels};

}  // namespace

const OpDefinition& MoeCombineOp() { return kDefinition; }

int64_t moe_combine::ChoiceStep(const OpCall& call) {
  const int64_t width = call.outputs[0].RowElements();
  return call.inputs[0].RowElements() == width ? 0 : width;
}

}  // namespace pagemill::ops
