#include "cc/program/weights/packed_weights.h"

#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "cc/base/xxh3.h"
#include "cc/program/operand_views.h"

namespace pagemill::program {
namespace {

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
  bool follows;
};

struct Layout {
  std::vector<Copy> copies;
  std::vector<Operand> operands;
  PackedBytes bytes;
};

// Calls f(op, input, packing, weight) for each operand that its kernel wants packed; of those that
// follow others, or of those that do not.
template <class F>
void ForEachPacked(const Program& program, std::span<const ops::KernelRow* const> rows,
                   bool follows, const F& f) {
  for (size_t op = 0; op < rows.size(); ++op) {
    const std::vector<ValueId>& inputs = program.ops()[op].inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ops::WeightPacking* packing = ops::PackingOf(*rows[op], i);
      if (packing == nullptr || inputs[i] == kNoValue || packing->follows != follows) continue;
      if (program.value(inputs[i]).kind != ValueKind::kWeight) continue;
      f(op, i, *packing, inputs[i]);
    }
  }
}

Layout LayOut(const Program& program, std::span<const ops::KernelRow* const> rows) {
  Layout layout;
  std::map<std::pair<ByteRange, std::string_view>, size_t> known;
  std::set<ByteRange> stored;
  ForEachPacked(program, rows, /*follows=*/false,
                [&](size_t op, size_t input, const ops::WeightPacking& packing, ValueId weight) {
                  const Value& v = program.value(weight);
                  const ByteRange range = StoredRange(v);
                  const auto [found, added] =
                      known.try_emplace({range, packing.layout}, layout.copies.size());
                  layout.operands.push_back({op, input, found->second, false});
                  if (!added) return;
                  const TensorView view = MakeView(v, {}, {}, nullptr);
                  layout.copies.push_back({&packing, weight, view, layout.bytes.packed_bytes});
                  layout.bytes.packed_bytes += packing.bytes(view);
                  if (stored.insert(range).second) layout.bytes.stored_bytes += std::get<2>(range);
                });
  ForEachPacked(
      program, rows, /*follows=*/true,
      [&](size_t op, size_t input, const ops::WeightPacking& packing, ValueId weight) {
        const auto found = known.find({StoredRange(program.value(weight)), packing.layout});
        if (found != known.end()) layout.operands.push_back({op, input, found->second, true});
      });
  return layout;
}

TensorView ViewOf(const Copy& copy, const Weights& weights) {
  TensorView view = copy.view;
  view.data = const_cast<std::byte*>(weights.data(copy.weight));
  return view;
}

// Of all that decides the bytes of the copies and where they lie.
Digest128 KeyOf(const Program& program, const Layout& layout, const Weights& weights,
                device::ThreadPool& pool) {
  std::string text;
  for (const Copy& copy : layout.copies) {
    const TensorView view = ViewOf(copy, weights);
    // Of columns of a stored matrix, all from the first element to the last.
    const int64_t stored = program.value(copy.weight).SpanBytes();
    const Digest128 digest =
        ParallelDigest({view.Data<const std::byte>(), static_cast<size_t>(stored)}, pool);
    text.append(copy.packing->layout).append(" ").append(Info(view.dtype).name);
    for (int64_t number : {view.shape[0], view.RowElements(), view.row_stride_bytes, copy.offset}) {
      text += " " + std::to_string(number);
    }
    text += " " + std::to_string(digest.high) + " " + std::to_string(digest.low) + "\n";
  }
  return Xxh3_128(text.data(), text.size());
}

// Of each op, its packed operands in one piece; empty where they lie apart or rows of them are
// picked.
std::vector<std::span<const std::byte>> ReadFromEndToEnd(const Layout& layout,
                                                         const std::byte* base, size_t ops) {
  std::vector<std::span<const std::byte>> read_by(ops);
  std::vector<bool> apart(ops, false);
  for (const Operand& operand : layout.operands) {  // of an op, ascending
    const Copy& copy = layout.copies[operand.copy];
    if (operand.follows) continue;
    const std::span<const std::byte> bytes(base + copy.offset,
                                           static_cast<size_t>(copy.packing->bytes(copy.view)));
    std::span<const std::byte>& all = read_by[operand.op];
    apart[operand.op] =
        apart[operand.op] || (!all.empty() && all.data() + all.size() != bytes.data());
    all = all.empty() ? bytes : std::span(all.data(), all.size() + bytes.size());
  }
  for (size_t op = 0; op < ops; ++op) {
    if (apart[op]) read_by[op] = {};
  }
  return read_by;
}

}  // namespace

PackedBytes CountPackedBytes(const Program& program, std::span<const ops::KernelRow* const> rows) {
  return LayOut(program, rows).bytes;
}

StatusOr<PackedWeights> PackedWeights::Make(const Program& program,
                                            std::span<const ops::KernelRow* const> rows,
                                            const Weights& weights, const PackCache* cache,
                                            device::ThreadPool& pool) {
  const Layout layout = LayOut(program, rows);
  PackedWeights packed;
  if (layout.copies.empty()) return packed;
  const int64_t bytes = layout.bytes.packed_bytes;
  Digest128 key;
  if (cache != nullptr) {
    key = KeyOf(program, layout, weights, pool);
    packed.mapped_ = cache->Find(key, bytes, pool);
  }
  const std::byte* base = nullptr;
  if (packed.mapped_) {
    base = packed.mapped_->bytes.data();
  } else {
    PM_ASSIGN_OR_RETURN(packed.memory_, LazyMemory::Allocate(bytes, "packed weights"));
    for (const Copy& copy : layout.copies) {
      copy.packing->pack(ViewOf(copy, weights), packed.memory_.data() + copy.offset, pool);
    }
    base = packed.memory_.data();
    if (cache != nullptr) {
      packed.store_status_ =
          cache->Store(key, packed.memory_.bytes().first(static_cast<size_t>(bytes)), pool);
    }
  }
  for (const Operand& operand : layout.operands) {
    packed.data_[{operand.op, operand.input}] = base + layout.copies[operand.copy].offset;
  }
  packed.read_by_ = ReadFromEndToEnd(layout, base, rows.size());
  weights.DropPages();
  return packed;
}

}  // namespace pagemill::program
