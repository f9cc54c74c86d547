#include <utility>
#include <vector>

#include "cc/ops/linear/linear.h"
#include "cc/program/rewrites/rewrites.h"

namespace pagemill::program {
namespace {

// Of one matrix after x: the weight and the bias.
constexpr size_t kOperands = 2;

// A product of an activation with one matrix of weights, which exist from the start as its bias
// does: it may run anywhere after its x.
bool IsMovableLinear(const Program& program, const Op& op) {
  if (op.name != "linear" || op.outputs.size() != 1) return false;
  if (op.inputs.size() != kOperands && op.inputs.size() != 1 + kOperands) return false;
  for (size_t i = 1; i < op.inputs.size(); ++i) {
    if (op.inputs[i] == kNoValue) continue;
    if (program.value(op.inputs[i]).kind != ValueKind::kWeight) return false;
  }
  return op.inputs[0] != kNoValue && op.inputs[1] != kNoValue;
}

// Can one call multiply both? As HaveOneFormat() of cc/tensor/quantized.h.
bool AreAlike(const Value& a, const Value& b) {
  if (a.dtype != b.dtype || a.quantized.has_value() != b.quantized.has_value()) return false;
  return !a.quantized || (HaveOneFormat(a.quantized->format, b.quantized->format) &&
                          (a.quantized->zeros == kNoValue) == (b.quantized->zeros == kNoValue) &&
                          (a.quantized->groups == kNoValue) == (b.quantized->groups == kNoValue));
}

bool BelongTogether(const Program& program, const Op& first, const Op& other) {
  return other.name == first.name && other.inputs[0] == first.inputs[0] &&
         other.attributes.values() == first.attributes.values() &&
         AreAlike(program.value(other.inputs[1]), program.value(first.inputs[1]));
}

}  // namespace

int32_t FuseLinears(Program& program) {
  std::vector<Op>& ops = program.mutable_ops();
  int32_t count = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!IsMovableLinear(program, ops[i])) continue;
    bool fused = false;
    for (size_t j = i + 1; j < ops.size();) {
      if (static_cast<int64_t>(ops[i].outputs.size()) == ops::kMaxMatrices) break;
      if (!IsMovableLinear(program, ops[j]) || !BelongTogether(program, ops[i], ops[j])) {
        ++j;
        continue;
      }
      ops[i].inputs.resize(1 + kOperands * ops[i].outputs.size(), kNoValue);
      ops[j].inputs.resize(1 + kOperands, kNoValue);
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
