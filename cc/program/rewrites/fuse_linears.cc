#include <utility>
#include <vector>

#include "cc/ops/linear/linear.h"
#include "cc/program/rewrites/rewrites.h"

namespace pagemill::program {
namespace {

// A linear of an activation with one matrix of weights, which exist from the start as its bias
// does: it may run wherever its x exists.
bool IsMovableLinear(const Program& program, const Op& op) {
  if (op.name != "linear" || op.outputs.size() != 1) return false;
  if (op.inputs.size() != 2 && op.inputs.size() != 3) return false;
  for (size_t i = 1; i < op.inputs.size(); ++i) {
    if (op.inputs[i] == kNoValue) continue;
    if (program.value(op.inputs[i]).kind != ValueKind::kWeight) return false;
  }
  return op.inputs[0] != kNoValue && op.inputs[1] != kNoValue;
}

bool BelongTogether(const Program& program, const Op& first, const Op& other) {
  return other.inputs[0] == first.inputs[0] && other.attributes.values().empty() &&
         program.value(other.inputs[1]).dtype == program.value(first.inputs[1]).dtype;
}

}  // namespace

int32_t FuseLinears(Program& program) {
  std::vector<Op>& ops = program.mutable_ops();
  int32_t count = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!IsMovableLinear(program, ops[i]) || !ops[i].attributes.values().empty()) continue;
    bool fused = false;
    for (size_t j = i + 1; j < ops.size();) {
      if (static_cast<int64_t>(ops[i].outputs.size()) == ops::kMaxMatrices) break;
      if (!IsMovableLinear(program, ops[j]) || !BelongTogether(program, ops[i], ops[j])) {
        ++j;
        continue;
      }
      ops[i].inputs.resize(1 + 2 * ops[i].outputs.size(), kNoValue);
      ops[i].inputs.push_back(ops[j].inputs[1]);
      ops[i].inputs.push_back(ops[j].inputs.size() == 3 ? ops[j].inputs[2] : kNoValue);
      ops[i].outputs.push_back(ops[j].outputs[0]);
      ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(j));
      fused = true;
    }
    count += fused ? 1 : 0;
  }
  return count;
}

}  // namespace pagemill::program
