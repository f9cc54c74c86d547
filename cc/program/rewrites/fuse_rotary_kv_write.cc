#include <algorithm>
#include <vector>

#include "cc/program/rewrites/rewrites.h"

namespace pagemill::program {
namespace {

bool Contains(const std::vector<ValueId>& ids, ValueId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Of ops after ops[rotary], the kv_write of its k that may run where that runs: its v exists there,
// and nobody between the two reads or writes its cache. 0 where there is none.
size_t FindKvWrite(const std::vector<Op>& ops, size_t rotary) {
  const ValueId k = ops[rotary].outputs[1];
  for (size_t i = rotary + 1; i < ops.size(); ++i) {
    const Op& op = ops[i];
    if (op.name != "kv_write" || op.inputs.size() != 3 || op.inputs[0] != k) continue;
    const ValueId v = op.inputs[1], cache = op.inputs[2];
    const bool movable =
        std::none_of(ops.begin() + static_cast<std::ptrdiff_t>(rotary),
                     ops.begin() + static_cast<std::ptrdiff_t>(i), [&](const Op& between) {
                       return Contains(between.outputs, v) || Contains(between.inputs, cache);
                     });
    return movable ? i : 0;
  }
  return 0;
}

}  // namespace

int32_t FuseRotaryKvWrite(Program& program) {
  std::vector<Op>& ops = program.mutable_ops();
  int32_t count = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].name != "rotary" || ops[i].inputs.size() != 4 || ops[i].outputs.size() != 2) {
      continue;
    }
    const size_t j = FindKvWrite(ops, i);
    if (j == 0) continue;
    ops[i].name = "rotary_kv_write";
    ops[i].inputs.insert(ops[i].inputs.end(), ops[j].inputs.begin() + 1, ops[j].inputs.end());
    ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(j));
    ++count;
  }
  return count;
}

}  // namespace pagemill::program
