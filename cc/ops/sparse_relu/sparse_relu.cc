#include "cc/ops/sparse_relu/sparse_relu.h"

#include <cmath>
#include <limits>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

Status CheckSparseRelu(const OpCall& call) {
  OperandCheck check("sparse_relu", call, /*inputs=*/1, /*outputs=*/1);
  check.ActInput(0, "x", "N,H");
  check.ActOutput(0, "y", "N,H");
  if (!check.ok()) return check.Result();
  check.Require(check.Dim('H') > 0, "rows must not be empty");
  constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
  check.Require(std::isfinite(static_cast<float>(call.attributes->Get("deviations", kMissing))),
                "attribute deviations must be a finite number");
  return check.Result();
}

constexpr F32Kernel kReference{.act_inputs = 0b1, .run = SparseReluReference};

constexpr Kernel kKernels[] = {
    {"sparse_relu", "portable", 10, OnEveryCpu, SparseReluPortable},
    WidenedReference<&kReference>("sparse_relu"),
};

constexpr AliasRule kAliases[] = {{.input = 0, .output = 0}};

constexpr OpDefinition kDefinition{"sparse_relu", CheckSparseRelu, kKernels, kAliases};

}  // namespace

SparseReluArgs ToSparseReluArgs(const OpCall& call) {
  return {.x = call.inputs[0],
          .y = call.outputs[0],
          .deviations = call.attributes->Get("deviations", 0)};
}

const OpDefinition& SparseReluOp() { return kDefinition; }

}  // namespace pagemill::ops
