#include "cc/ops/layer_norm/layer_norm.h"

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

Status CheckLayerNorm(const OpCall& call) {
  OperandCheck check("layer_norm", call, /*inputs=*/3, /*outputs=*/1);
  check.ActInput(0, "x", "*,H");
  const bool groups =
      check.ok() && call.inputs[0].rank == 3 && call.inputs[1].shape[0] != check.Dim('H');
  check.Input(1, "w", DType::kF32, groups ? "W" : "H");
  check.Input(2, "b", DType::kF32, groups ? "W" : "H");
  check.ActOutput(0, "y", "N,F*");
  if (!check.ok()) return check.Result();
  check.Require(call.inputs[0].rank >= 2, "x must have two dimensions or more");
  check.Require(call.inputs[0].shape[0] == call.outputs[0].shape[0] &&
                    call.inputs[0].RowElements() == call.outputs[0].RowElements(),
                "y must have as many rows as x, and as many elements a row");
  check.Require(!groups || check.Dim('W') == call.inputs[0].RowElements(),
                "w and b must have an element for each of a row, or of its last dimension");
  check.Require(check.Dim('H') > 0, "rows must not be empty");
  check.Require(call.attributes->Get("eps", 0) > 0, "attribute eps must be above 0");
  return check.Result();
}

constexpr F32Kernel kReference{.act_inputs = 0b1, .run = LayerNormReference};

constexpr Kernel kKernels[] = {
    {"layer_norm", "portable", 10, OnEveryCpu, LayerNormPortable},
    WidenedReference<&kReference>("layer_norm"),
};

constexpr OpDefinition kDefinition{"layer_norm", CheckLayerNorm, kKernels};

}  // namespace

LayerNormArgs ToLayerNormArgs(const OpCall& call) {
  return {.x = call.inputs[0],
          .w = call.inputs[1],
          .b = call.inputs[2],
          .y = call.outputs[0],
          .eps = static_cast<float>(call.attributes->Get("eps", 0)),
          .weight_offset = static_cast<float>(call.attributes->Get("weight_offset", 0))};
}

const OpDefinition& LayerNormOp() { return kDefinition; }

}  // namespace pagemill::ops
