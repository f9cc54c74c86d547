#include "cc/ops/scale/scale.h"

#include <cmath>
#include <limits>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

Status CheckScale(const OpCall& call) {
  OperandCheck check("scale", call, /*inputs=*/1, /*outputs=*/1);
  check.ActInput(0, "x", "N,H*");
  check.ActOutput(0, "y", "N,H*");
  if (!check.ok()) return check.Result();
  constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
  check.Require(std::isfinite(static_cast<float>(call.attributes->Get("by", kMissing))),
                "attribute by must be a finite number");
  return check.Result();
}

constexpr F32Kernel kReference{.act_inputs = 0b1, .run = ScaleReference};

constexpr Kernel kKernels[] = {
    {"scale", "portable", 10, OnEveryCpu, ScalePortable},
    WidenedReference<&kReference>("scale"),
};

constexpr AliasRule kAliases[] = {{.input = 0, .output = 0}};

constexpr OpDefinition kDefinition{"scale", CheckScale, kKernels, kAliases};

}  // namespace

ScaleArgs ToScaleArgs(const OpCall& call) {
  return {.x = call.inputs[0],
          .y = call.outputs[0],
          .by = static_cast<float>(call.attributes->Get("by", 0))};
}

const OpDefinition& ScaleOp() { return kDefinition; }

}  // namespace pagemill::ops
