#include "cc/program/check_ops.h"

#include <string>
#include <string_view>

#include "cc/ops/batch_view.h"
#include "cc/program/operand_views.h"

namespace pagemill::program {

namespace {

// `op` must not have `attribute` unless the program declares the step array `input`.
Status CheckStepArray(const Program& program, const Op& op, std::string_view attribute,
                      std::string_view input) {
  if (op.attributes.GetInt(attribute, 0) == 0 || program.Find(input).has_value()) {
    return OkStatus();
  }
  return InvalidArgument(LinePrefix(op.line) + op.name + ": the attribute " +
                         std::string(attribute) + " needs the input " + std::string(input));
}

// An attribute with the name of an optional step array says that the op reads it.
Status CheckStepArrays(const Program& program, const Op& op) {
  for (const auto& info : ops::kStepArrays) {
    if (!info.if_declared) continue;
    PAGEMILL_RETURN_IF_ERROR(CheckStepArray(program, op, info.name, info.name));
  }
  for (const std::string_view attribute : {"grid", "grid_window"}) {
    PAGEMILL_RETURN_IF_ERROR(CheckStepArray(program, op, attribute, "grid_positions"));
  }
  return OkStatus();
}

// "tokens = 61, requests = 7, ..."
std::string SizesText(const StepSizes& sizes) {
  std::string text;
  for (const ops::DimInfo& info : ops::kDims) {
    text.append(text.empty() ? "" : ", ").append(info.name).append(" = ");
    text += std::to_string(sizes.*info.bound);
  }
  return text;
}

}  // namespace

Status CheckOp(const Program& program, const Op& op, const ops::OpDefinition& definition,
               const KvLayout& layout) {
  // A number that stands for one dimension in both is none of a program's own.
  static constexpr StepSizes kSizes[] = {
      {.tokens = 61, .requests = 7, .logits_rows = 11, .media_rows = 13, .text_rows = 17},
      {.tokens = 59, .requests = 5, .logits_rows = 19, .media_rows = 23, .text_rows = 29},
  };
  for (const StepSizes& sizes : kSizes) {
    const Status status = definition.check(OperandViews(program, op, sizes, layout).call());
    if (!status.ok()) {
      return {status.code(),
              LinePrefix(op.line) + status.message() + " (" + SizesText(sizes) + ")"};
    }
  }
  return OkStatus();
}

Status CheckOps(const Program& program, std::span<const ops::OpDefinition> ops, DType kv) {
  PAGEMILL_ASSIGN_OR_RETURN(
      const KvLayout layout,
      PlanKvLayout(program, {.num_blocks = 5, .block_size = 16, .dtype = kv}));
  for (const Op& op : program.ops()) {
    const StatusOr<const ops::OpDefinition*> definition = ops::FindOp(ops, op.name);
    if (!definition.ok()) {
      return {definition.status().code(), LinePrefix(op.line) + definition.status().message()};
    }
    PAGEMILL_RETURN_IF_ERROR(CheckStepArrays(program, op));
    PAGEMILL_RETURN_IF_ERROR(CheckOp(program, op, **definition, layout));
  }
  return OkStatus();
}

}  // namespace pagemill::program
