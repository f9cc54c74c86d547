#include <utility>
#include <vector>

#include "cc/ops/linear/linear.h"
#include "cc/program/rewrites/rewrites.h"

namespace pagemill::program {
namespace {

// Operands of one matrix after x, the bias last; 0 for other ops.
size_t OperandsOfMatrix(const Op& op) {
  if (op.name == "linear") return 2;
  return op.name == "scaled_linear" ? 3 : 0;
}

// A product of an activation with one matrix of weights, which exist from the start as its scales
// and its bias do: it may run wherever its x exists.
bool IsMovableLinear(const Program& program, const Op& op) {
  const size_t operands = OperandsOfMatrix(op);
  if (operands == 0 || op.outputs.size() != 1) return false;
  if (op.inputs.size() != operands && op.inputs.size() != 1 + operands) return false;
  for (size_t i = 1; i < op.inputs.size(); ++i) {
    if (op.inputs[i] == kNoValue) continue;
    if (program.value(op.inputs[i]).kind != ValueKind::kWeight) return false;
  }
  return op.inputs[0] != kNoValue && op.inputs[1] != kNoValue;
}

bool BelongTogether(const Program& program, const Op& first, const Op& other) {
  return other.name == first.name && other.inputs[0] == first.inputs[0] &&
         other.attributes.values() == first.attributes.values() &&
         program.value(other.inputs[1]).dtype == program.value(first.inputs[1]).dtype;
}

}  // namespace

int32_t FuseLinears(Program& program) {
  std::vector<Op>& ops = program.mutable_ops();
  int32_t count = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!IsMovableLinear(program, ops[i])) continue;
    const size_t operands = OperandsOfMatrix(ops[i]);
    bool fused = false;
    for (size_t j = i + 1; j < ops.size();) {
      if (static_cast<int64_t>(ops[i].outputs.size()) == ops::kMaxMatrices) break;
      if (!IsMovableLinear(program, ops[j]) || !BelongTogether(program, ops[i], ops[j])) {
        ++j;
        continue;
      }
      ops[i].inputs.resize(1 + operands * ops[i].outputs.size(), kNoValue);
      ops[j].inputs.resize(1 + operands, kNoValue);
      ops[i].inputs.insert(ops[i].inputs.end(), ops[j].inputs.begin() + 1, ops[j].inputs.end());
      ops[i].outputs.push_back(ops[j].outputs[0]);
      ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(j));
      fused = true;
    }
    count += fused ? 1 : 0;
  }
  return count;
}

}  // namespace pagemill::program
