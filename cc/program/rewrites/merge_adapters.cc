#include <algorithm>
#include <cstddef>
#include <vector>

#include "cc/ops/apply_adapter/apply_adapter.h"
#include "cc/program/rewrites/rewrites.h"

namespace pagemill::program {
namespace {

constexpr size_t kFirst = ops::apply_adapter::ResultOperand(0);

bool AppliesAdapters(const Program& program, const Op& op) {
  return op.inputs.size() > kFirst + 1 && op.inputs[kFirst + 1] != kNoValue &&
         program.value(op.inputs[kFirst + 1]).kind == ValueKind::kAdapter;
}

// True if no op from `begin` to `end` writes `id`.
bool ExistsBefore(const std::vector<Op>& ops, size_t begin, size_t end, ValueId id) {
  return std::none_of(ops.begin() + static_cast<std::ptrdiff_t>(begin),
                      ops.begin() + static_cast<std::ptrdiff_t>(end), [id](const Op& op) {
                        return std::find(op.outputs.begin(), op.outputs.end(), id) !=
                               op.outputs.end();
                      });
}

}  // namespace

StatusOr<int32_t> MergeAdapters(Program& program, std::span<const ops::OpDefinition>) {
  std::vector<Op>& ops = program.mutable_ops();
  int32_t count = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!AppliesAdapters(program, ops[i])) continue;
    const size_t before = ops[i].outputs.size();
    for (size_t j = i + 1; j < ops.size() && ops[i].outputs.size() < ops::kMaxAdaptedLayers;) {
      if (!AppliesAdapters(program, ops[j]) || ops[j].outputs.size() != 1 ||
          !std::equal(ops[j].inputs.begin(), ops[j].inputs.begin() + kFirst,
                      ops[i].inputs.begin()) ||
          !ExistsBefore(ops, i, j, ops[j].inputs[kFirst])) {
        ++j;
        continue;
      }
      ops[i].inputs.insert(ops[i].inputs.end(), ops[j].inputs.begin() + kFirst,
                           ops[j].inputs.end());
      ops[i].outputs.push_back(ops[j].outputs[0]);
      ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(j));
    }
    if (ops[i].outputs.size() > before) ++count;
  }
  return count;
}

}  // namespace pagemill::program
