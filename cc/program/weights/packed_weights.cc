#include "cc/program/weights/packed_weights.h"

#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "cc/program/operand_views.h"

namespace pagemill::program {
namespace {

// What of a file a weight takes; weights that are tied take the same.
using ByteRange = std::tuple<int32_t, int64_t, int64_t, int64_t>;  // file, offset, size, stride

struct Copy {
  const ops::WeightPacking* packing;
  ValueId weight;
  TensorView view;  // no data yet
  int64_t offset;   // in the memory of all copies
};

struct Operand {
  size_t op;
  size_t input;
  size_t copy;  // index
};

struct Layout {
  std::vector<Copy> copies;
  std::vector<Operand> operands;
  PackedBytes bytes;
};

Layout LayOut(const Program& program, std::span<const ops::KernelRow* const> rows) {
  Layout layout;
  std::map<std::pair<ByteRange, std::string_view>, size_t> known;
  std::set<ByteRange> stored;
  for (size_t op = 0; op < rows.size(); ++op) {
    const std::vector<ValueId>& inputs = program.ops()[op].inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ops::WeightPacking* packing = ops::PackingOf(*rows[op], i);
      if (packing == nullptr || inputs[i] == kNoValue) continue;
      const Value& v = program.value(inputs[i]);
      const ByteRange range = {v.weight.file, v.weight.offset, v.Bytes({}), v.weight.row_stride};
      const auto [found, added] = known.try_emplace({range, packing->layout}, layout.copies.size());
      layout.operands.push_back({op, i, found->second});
      if (!added) continue;
      const TensorView view = MakeView(v, {}, {}, nullptr);
      layout.copies.push_back({packing, inputs[i], view, layout.bytes.packed_bytes});
      layout.bytes.packed_bytes += packing->bytes(view);
      if (stored.insert(range).second) layout.bytes.stored_bytes += std::get<2>(range);
    }
  }
  return layout;
}

}  // namespace

PackedBytes CountPackedBytes(const Program& program, std::span<const ops::KernelRow* const> rows) {
  return LayOut(program, rows).bytes;
}

StatusOr<PackedWeights> PackedWeights::Pack(const Program& program,
                                            std::span<const ops::KernelRow* const> rows,
                                            const Weights& weights, device::ThreadPool& pool) {
  const Layout layout = LayOut(program, rows);
  PackedWeights packed;
  PM_ASSIGN_OR_RETURN(packed.memory_,
                      LazyMemory::Allocate(layout.bytes.packed_bytes, "packed weights"));
  for (const Copy& copy : layout.copies) {
    TensorView view = copy.view;
    view.data = const_cast<std::byte*>(weights.data(copy.weight));
    copy.packing->pack(view, packed.memory_.data() + copy.offset, pool);
  }
  for (const Operand& operand : layout.operands) {
    packed.data_[{operand.op, operand.input}] =
        packed.memory_.data() + layout.copies[operand.copy].offset;
  }
  if (!layout.copies.empty()) weights.DropPages();
  return packed;
}

}  // namespace pagemill::program
