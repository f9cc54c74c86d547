#include "cc/ops/merge_attention/merge_attention.h"

#include <string>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

Status CheckMergeAttention(const OpCall& call) {
  const bool two = call.inputs.size() > 3;
  OperandCheck check("merge_attention", call, /*inputs=*/two ? 5 : 3, /*outputs=*/1);
  check.ActInput(1, "x_0", "T,H,D");
  check.Input(2, "lse_0", DType::kF32, "T,H");
  if (check.ok() && call.inputs[0].rank > 0) check.Input(0, "sinks", DType::kF32, "H");
  if (two) {
    check.ActInput(3, "x_1", "T,H,D");
    check.Input(4, "lse_1", DType::kF32, "T,H");
  }
  check.ActOutput(0, "y", "T,Y*");
  check.Require(check.Dim('H') >= 1, "there must be at least one head");
  check.Require(check.Dim('Y') == check.Dim('H') * check.Dim('D'),
                "rows of y must have " + std::to_string(check.Dim('H') * check.Dim('D')) +
                    " elements, got " + std::to_string(check.Dim('Y')));
  return check.Result();
}

constexpr F32Kernel kReference{.act_inputs = 0b1010, .run = merge_attention::RunReference};


constexpr Kernel kKernels[] = {
    {"merge_attention", "portable", 10, OnEveryCpu, merge_attention::RunPortable},
    WidenedReference<&kReference>("merge_attention"),
};

constexpr AliasRule kAliases[] = {{.input = 1, .output = 0}};

constexpr OpDefinition kDefinition{"merge_attention", CheckMergeAttention, kKernels, kAliases};

}  // namespace

const OpDefinition& MergeAttentionOp() { return kDefinition; }

namespace merge_attention {

Args ToArgs(const OpCall& call) {
  Args args;
  if (call.inputs[0].rank > 0) args.sinks = call.inputs[0].Data<const float>();
  args.y = call.outputs[0];
  args.sets = call.inputs.size() / 2;
  for (size_t s = 0; s < args.sets; ++s) {
    args.x[s] = call.inputs[1 + 2 * s];
    args.lse[s] = call.inputs[2 + 2 * s];
  }
  return args;
}

}  // namespace merge_attention

}  // namespace pagemill::ops
