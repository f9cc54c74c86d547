#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "cc/program/check_ops.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/rewrites/rewrites.h"

namespace pagemill::program {
namespace {

using Ops = std::vector<Op>;

bool Contains(const std::vector<ValueId>& ids, ValueId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// The value that links the two ops if `first` matches `fused.first`; else kNoValue.
ValueId LinkFrom(const Op& first, const ops::FusedOps& fused) {
  const auto output = static_cast<size_t>(fused.output);
  return first.name == fused.first && output < first.outputs.size() ? first.outputs[output]
                                                                    : kNoValue;
}

// True if ops[second] may run at the position of ops[first]: its other inputs exist there, and no
// op between the two uses the same cache.
bool CanMove(const Program& program, size_t first, size_t second, ValueId link) {
  const Ops& ops = program.ops();
  for (ValueId input : ops[second].inputs) {
    if (input == link || input == kNoValue) continue;
    const bool is_cache = program.value(input).kind == ValueKind::kCache;
    for (size_t i = first; i < second; ++i) {
      if (Contains(ops[i].outputs, input)) return false;
      if (is_cache && Contains(ops[i].inputs, input)) return false;
    }
  }
  return true;
}

// The op that computes both; see ops::FusedOps.
Op Fuse(const ops::OpDefinition& definition, const Op& first, const Op& second) {
  Op fused = first;
  fused.name = definition.op;
  const auto link = static_cast<size_t>(definition.traits.fuses.input);
  for (size_t i = 0; i < second.inputs.size(); ++i) {
    if (i != link) fused.inputs.push_back(second.inputs[i]);
  }
  fused.outputs = second.outputs;
  fused.outputs.insert(fused.outputs.end(), first.outputs.begin(), first.outputs.end());
  for (const auto& [name, value] : second.attributes.values()) fused.attributes.Set(name, value);
  return fused;
}

class Fuser {
 public:
  Fuser(Program& program, const ops::OpDefinition& definition, const KvLayout& layout)
      : program_(program), definition_(definition), layout_(layout) {}

  int32_t Run() {
    int32_t count = 0;
    for (size_t i = 0; i < program_.ops().size(); ++i) {
      const ValueId link = LinkFrom(program_.ops()[i], definition_.traits.fuses);
      if (link != kNoValue && FuseWithReader(i, link)) ++count;
    }
    return count;
  }

 private:
  // Fuses with the first reader of the link that fits.
  bool FuseWithReader(size_t first, ValueId link) {
    const auto input = static_cast<size_t>(definition_.traits.fuses.input);
    Ops& ops = program_.mutable_ops();
    for (size_t i = first + 1; i < ops.size(); ++i) {
      if (ops[i].name != definition_.traits.fuses.second || input >= ops[i].inputs.size()) continue;
      if (ops[i].inputs[input] != link || !CanMove(program_, first, i, link)) continue;
      Op fused = Fuse(definition_, ops[first], ops[i]);
      if (!CheckOp(program_, fused, definition_, layout_).ok()) continue;
      ops[first] = std::move(fused);
      ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
    return false;
  }

  Program& program_;
  const ops::OpDefinition& definition_;
  const KvLayout& layout_;
};

}  // namespace

StatusOr<int32_t> FuseOps(Program& program, std::span<const ops::OpDefinition> ops) {
  PAGEMILL_ASSIGN_OR_RETURN(
      const KvLayout layout,
      PlanKvLayout(program, {.num_blocks = 5, .block_size = 16, .dtype = DType::kBF16}));
  int32_t count = 0;
  for (const ops::OpDefinition& definition : ops) {
    if (definition.traits.fuses.first.empty()) continue;
    count += Fuser(program, definition, layout).Run();
  }
  return count;
}

}  // namespace pagemill::program
