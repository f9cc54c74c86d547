#include <algorithm>
#include <cstddef>
#include <vector>

#include "cc/program/rewrites/rewrites.h"

namespace pagemill::program {
namespace {

// True for a product with one matrix of weights; matrix and bias exist from the start, so it may
// run wherever its other inputs exist.
bool IsMovableProduct(const Program& program, const Op& op, const ops::MatrixInputs& matrices) {
  const auto first = static_cast<size_t>(matrices.first);
  const auto stride = static_cast<size_t>(matrices.stride);
  if (op.outputs.size() != 1) return false;
  if (op.inputs.size() + 1 != first + stride && op.inputs.size() != first + stride) return false;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (op.inputs[i] == kNoValue) {
      if (i <= first) return false;
    } else if (i >= first && program.value(op.inputs[i]).kind != ValueKind::kWeight) {
      return false;
    }
  }
  return true;
}

// True if one call can multiply both; as HaveOneFormat() in cc/tensor/quantized.h.
bool AreAlike(const Value& a, const Value& b) {
  if (a.dtype != b.dtype || a.quantized.has_value() != b.quantized.has_value()) return false;
  return !a.quantized || (HaveOneFormat(a.quantized->format, b.quantized->format) &&
                          (a.quantized->zeros == kNoValue) == (b.quantized->zeros == kNoValue) &&
                          (a.quantized->groups == kNoValue) == (b.quantized->groups == kNoValue));
}

bool BelongTogether(const Program& program, const Op& a, const Op& b, size_t first) {
  return b.name == a.name &&
         std::equal(a.inputs.begin(), a.inputs.begin() + first, b.inputs.begin()) &&
         b.attributes.values() == a.attributes.values() &&
         AreAlike(program.value(b.inputs[first]), program.value(a.inputs[first]));
}

// Moves the products that can join ops[index] into it.
bool MergeInto(Program& program, size_t index, const ops::MatrixInputs& matrices) {
  const auto first = static_cast<size_t>(matrices.first);
  const auto stride = static_cast<size_t>(matrices.stride);
  std::vector<Op>& ops = program.mutable_ops();
  bool merged = false;
  for (size_t j = index + 1; j < ops.size();) {
    Op& op = ops[index];
    if (op.outputs.size() == static_cast<size_t>(matrices.max_count)) break;
    if (ops[j].name != op.name || !IsMovableProduct(program, ops[j], matrices) ||
        !BelongTogether(program, op, ops[j], first)) {
      ++j;
      continue;
    }
    op.inputs.resize(first + stride * op.outputs.size(), kNoValue);
    ops[j].inputs.resize(first + stride, kNoValue);
    op.inputs.insert(op.inputs.end(), ops[j].inputs.begin() + static_cast<std::ptrdiff_t>(first),
                     ops[j].inputs.end());
    op.outputs.push_back(ops[j].outputs[0]);
    ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(j));
    merged = true;
  }
  return merged;
}

}  // namespace

StatusOr<int32_t> MergeProducts(Program& program, std::span<const ops::OpDefinition> definitions) {
  int32_t count = 0;
  for (size_t i = 0; i < program.ops().size(); ++i) {
    const StatusOr<const ops::OpDefinition*> definition =
        ops::FindOp(definitions, program.ops()[i].name);
    if (!definition.ok()) continue;  // reported by CheckOps()
    const ops::MatrixInputs& matrices = (*definition)->traits.matrices;
    if (matrices.max_count < 2 || !IsMovableProduct(program, program.ops()[i], matrices)) continue;
    if (MergeInto(program, i, matrices)) ++count;
  }
  return count;
}

}  // namespace pagemill::program
