#include "cc/program/check_ops.h"

#include "cc/program/kv/kv_layout.h"
#include "cc/program/operand_views.h"

namespace pagemill::program {

Status CheckOps(const Program& program, std::span<const ops::OpDefinition> ops, DType kv) {
  constexpr StepSizes kSizes = {
      .tokens = 61, .requests = 7, .logits_rows = 11, .media_rows = 13, .text_rows = 17};
  PAGEMILL_ASSIGN_OR_RETURN(
      const KvLayout layout,
      PlanKvLayout(program, {.num_blocks = 5, .block_size = 16, .dtype = kv}));
  for (const Op& op : program.ops()) {
    const StatusOr<const ops::OpDefinition*> definition = ops::FindOp(ops, op.name);
    if (!definition.ok()) {
      return {definition.status().code(), LinePrefix(op.line) + definition.status().message()};
    }
    const OperandViews operands(program, op, kSizes, layout);
    const Status status = (*definition)->check(operands.call());
    if (!status.ok()) {
      return {status.code(), LinePrefix(op.line) + status.message() +
                                 " (tokens = 61, requests = 7, logits_rows = 11, media_rows = 13,"
                                 " text_rows = 17)"};
    }
  }
  return OkStatus();
}

}  // namespace pagemill::program
