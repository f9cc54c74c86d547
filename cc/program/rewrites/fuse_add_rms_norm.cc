#include <utility>
#include <vector>

#include "cc/program/rewrites/rewrites.h"

namespace pagemill::program {
namespace {

// Is `op` an add of two activations of the sum's own shape, [rows, elements]?
bool IsResidualAdd(const Program& program, const Op& op) {
  if (op.name != "add" || op.inputs.size() != 2 || op.outputs.size() != 1) return false;
  const Value& sum = program.value(op.outputs[0]);
  if (sum.shape.rank != 2) return false;
  for (ValueId id : op.inputs) {
    if (id == kNoValue || program.value(id).kind != ValueKind::kActivation) return false;
    if (!(program.value(id).shape == sum.shape)) return false;
  }
  return true;
}

// May the rms_norm run where the sum is made? Its weight exists there, being no activation.
bool IsNormOf(const Program& program, const Op& op, ValueId sum) {
  return op.name == "rms_norm" && op.inputs.size() == 2 && op.outputs.size() == 1 &&
         op.inputs[0] == sum && op.inputs[1] != kNoValue &&
         program.value(op.inputs[1]).kind == ValueKind::kWeight &&
         program.value(op.outputs[0]).shape == program.value(sum).shape;
}

}  // namespace

int32_t FuseAddRmsNorm(Program& program) {
  std::vector<Op>& ops = program.mutable_ops();
  int32_t count = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!IsResidualAdd(program, ops[i])) continue;
    const ValueId sum = ops[i].outputs[0];
    for (size_t j = i + 1; j < ops.size(); ++j) {
      if (!IsNormOf(program, ops[j], sum)) continue;
      ops[i].name = "add_rms_norm";
      ops[i].inputs.push_back(ops[j].inputs[1]);
      ops[i].outputs = {ops[j].outputs[0], sum};
      ops[i].attributes = std::move(ops[j].attributes);
      ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(j));
      ++count;
      break;
    }
  }
  return count;
}

}  // namespace pagemill::program
