#include "cc/program/check_ops.h"

#include "cc/program/operand_views.h"

namespace pagemill::program {

Status CheckOps(const Program& program, std::span<const ops::OpDefinition> ops) {
  constexpr StepSizes kSizes = {.tokens = 61, .requests = 7, .logits_rows = 11};
  constexpr CacheGeometry kGeometry = {.num_blocks = 5, .block_size = 16};
  for (const Op& op : program.ops()) {
    const StatusOr<const ops::OpDefinition*> definition = ops::FindOp(ops, op.name);
    if (!definition.ok()) {
      return {definition.status().code(), LinePrefix(op.line) + definition.status().message()};
    }
    const OperandViews operands(program, op, kSizes, kGeometry);
    const Status status = (*definition)->check(operands.call());
    if (!status.ok()) {
      return {status.code(), LinePrefix(op.line) + status.message() + " (T = 61, R = 7, L = 11)"};
    }
  }
  return OkStatus();
}

}  // namespace pagemill::program
