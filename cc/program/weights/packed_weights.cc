#include "cc/program/weights/packed_weights.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "cc/base/xxh3.h"
#include "cc/program/assembly.h"
#include "cc/program/operand_views.h"
#include "cc/program/weights/assemble.h"
#include "cc/program/weights/weight_digests.h"

namespace pagemill::program {
namespace {

struct Copy {
  const ops::WeightPacking* packing;  // null: row by row
  ValueId weight;
  TensorView view;  // no data yet
  int64_t offset;   // in the memory of all copies

  int64_t bytes() const {
    return packing != nullptr ? packing->bytes(view)
                              : (view.shape[0] * view.row_stride_bytes + 63) / 64 * 64;
  }
};

struct Use {
  size_t op;
  size_t input;
  size_t copy;      // index
  bool end_to_end;  // the kernel reads all of it in this order
};

// Calls f(op, input, weight, packing) for each operand that is a weight; packing is null where its
// kernel reads it as stored.
template <class F>
void ForEachWeight(const Program& program, std::span<const ops::Kernel* const> rows, const F& f) {
  for (size_t op = 0; op < rows.size(); ++op) {
    const std::vector<ValueId>& inputs = program.ops()[op].inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == kNoValue || program.value(inputs[i]).kind != ValueKind::kWeight) continue;
      f(op, i, inputs[i], ops::PackingOf(*rows[op], i));
    }
  }
}

class Layout {
 public:
  Layout(const Program& program, std::span<const ops::Kernel* const> rows) : program_(program) {
    ForEachWeight(program, rows,
                  [&](size_t op, size_t input, ValueId weight, const ops::WeightPacking* packing) {
                    if (packing == nullptr || packing->follows) return;
                    // Of a stack, kernels read the matrices that a step chooses.
                    const bool end_to_end = program_.value(weight).shape.rank < 3;
                    uses.push_back({op, input, CopyOf(weight, packing), end_to_end});
                  });
    // Those that would do with either order.
    ForEachWeight(program, rows,
                  [&](size_t op, size_t input, ValueId weight, const ops::WeightPacking* packing) {
                    if (packing != nullptr && !packing->follows) return;
                    const auto found =
                        packing == nullptr
                            ? known_.end()
                            : known_.find({StoredRange(program_, weight), packing->layout});
                    if (found != known_.end()) {
                      uses.push_back({op, input, found->second, false});
                    } else if (program_.value(weight).IsMade()) {
                      uses.push_back({op, input, CopyOf(weight, nullptr), false});
                    }
                  });
  }

  std::vector<Copy> copies;
  std::vector<Use> uses;
  PackedBytes bytes;

 private:
  size_t CopyOf(ValueId weight, const ops::WeightPacking* packing) {
    const std::string_view order = packing == nullptr ? std::string_view() : packing->layout;
    const auto [found, added] =
        known_.try_emplace({StoredRange(program_, weight), order}, copies.size());
    if (!added) return found->second;
    const Value& v = program_.value(weight);
    copies.push_back({packing, weight, MakeView(v, {}, nullptr), bytes.packed_bytes});
    bytes.packed_bytes += copies.back().bytes();
    CountStored(weight);
    return found->second;
  }

  // What is in files of the weight, or of what it is made of.
  void CountStored(ValueId weight) {
    const Value& v = program_.value(weight);
    if (v.assembly) {
      for (ValueId part : v.assembly->parts()) {
        if (part != kNoValue) CountStored(part);
      }
    }
    for (ValueId part : v.stack) CountStored(part);
    if (v.IsMade()) return;
    const ByteRange range = StoredRange(program_, weight);
    if (stored_.insert(range).second) bytes.stored_bytes += std::get<2>(range);
  }

  const Program& program_;
  std::map<std::pair<ByteRange, std::string_view>, size_t> known_;  // index of the copy
  std::set<ByteRange> stored_;
};

TensorView ViewOf(const Copy& copy, const std::byte* data) {
  TensorView view = copy.view;
  view.data = const_cast<std::byte*>(data);
  return view;
}

// Which bytes of which file: those of a stored matrix's columns, from the first to the last.
std::string SourceText(const Program& program, ValueId weight,
                       const std::vector<Digest128>& digests) {
  const Value& v = program.value(weight);
  const Digest128& file = digests[static_cast<size_t>(v.weight.file)];
  std::string text;
  for (uint64_t number : {file.high, file.low, static_cast<uint64_t>(v.weight.offset),
                          static_cast<uint64_t>(v.SpanBytes())}) {
    text += " " + std::to_string(number);
  }
  return text;
}

// Which bytes a weight has, or is made of and how.
std::string RecipeText(const Program& program, ValueId weight,
                       const std::vector<Digest128>& digests) {
  const Value& v = program.value(weight);
  std::string text;
  if (v.assembly) {
    text.append(" ").append(kAssemblyVersion).append(" ").append(NameOf(v.assembly->layout));
    for (int64_t number : {int64_t{v.assembly->bits}, v.assembly->group, v.assembly->first_row,
                           v.assembly->first_column}) {
      text += " " + std::to_string(number);
    }
    for (ValueId part : v.assembly->parts()) {
      text += part == kNoValue ? " -"
                               : " " + std::string(Info(program.value(part).dtype).name) +
                                     SourceText(program, part, digests);
    }
    return text;
  }
  if (v.stack.empty()) return SourceText(program, weight, digests);
  text += " stack " + std::to_string(v.stack.size());
  for (ValueId part : v.stack) text += RecipeText(program, part, digests);
  return text;
}

// Of all that decides the bytes of the copies and where they lie.
Digest128 KeyOf(const Program& program, const Layout& layout,
                const std::vector<Digest128>& digests) {
  std::string text;
  for (const Copy& copy : layout.copies) {
    const TensorView& view = copy.view;
    text.append(copy.packing == nullptr ? "rows" : copy.packing->layout);
    text.append(" ").append(Info(view.dtype).name);
    for (int64_t number : {view.shape[0], view.RowElements(), view.row_stride_bytes, copy.offset}) {
      text += " " + std::to_string(number);
    }
    text += RecipeText(program, copy.weight, digests) + "\n";
  }
  return Xxh3_128(text.data(), text.size());
}

// Of each op, its packed operands in one piece; empty where they lie apart or rows of them are
// picked.
std::vector<std::span<const std::byte>> ReadFromEndToEnd(const Layout& layout,
                                                         const std::byte* base, size_t ops) {
  std::vector<std::span<const std::byte>> read_by(ops);
  std::vector<bool> apart(ops, false);
  for (const Use& use : layout.uses) {  // of an op, ascending
    const Copy& copy = layout.copies[use.copy];
    if (!use.end_to_end) continue;
    const std::span<const std::byte> bytes(base + copy.offset, static_cast<size_t>(copy.bytes()));
    std::span<const std::byte>& all = read_by[use.op];
    apart[use.op] = apart[use.op] || (!all.empty() && all.data() + all.size() != bytes.data());
    all = all.empty() ? bytes : std::span(all.data(), all.size() + bytes.size());
  }
  for (size_t op = 0; op < ops; ++op) {
    if (apart[op]) read_by[op] = {};
  }
  return read_by;
}

// The matrix `weight`, which may be some columns of a wider one or assembled, row after row.
Status MakeRows(const Program& program, ValueId weight, const Weights& weights, std::byte* target,
                device::ThreadPool& pool) {
  const Value& v = program.value(weight);
  if (v.assembly) return Assemble(program, weight, weights, target, pool);
  const std::byte* const from = weights.data(weight);
  const int64_t stride = v.RowStrideBytes(), row = RowBytes(v.dtype, v.shape.RowElements());
  pool.ParallelFor(v.shape.dims[0], /*grain=*/64, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      std::copy_n(from + r * stride, row, target + r * row);
    }
  });
  return OkStatus();
}

// A packed stack is its packed parts, one after the other (ops::WeightPacking).
Status MakeStack(const Program& program, const Copy& copy, const Weights& weights,
                 std::byte* target, device::ThreadPool& pool) {
  TensorView part = copy.view;
  part.shape[0] = 1;
  const int64_t stored_bytes = part.row_stride_bytes;
  const int64_t bytes = copy.packing == nullptr ? stored_bytes : copy.packing->bytes(part);
  LazyMemory rows;
  for (ValueId id : program.value(copy.weight).stack) {
    const Value& v = program.value(id);
    if (copy.packing == nullptr) {
      PM_RETURN_IF_ERROR(MakeRows(program, id, weights, target, pool));
    } else {
      const std::byte* data = weights.data(id);
      if (v.IsMade() || v.weight.row_stride != 0) {
        if (rows.bytes().empty()) {
          PM_ASSIGN_OR_RETURN(rows, LazyMemory::Allocate(stored_bytes, "a part of a stack"));
        }
        PM_RETURN_IF_ERROR(MakeRows(program, id, weights, rows.data(), pool));
        data = rows.data();
      }
      part.data = const_cast<std::byte*>(data);
      copy.packing->pack(part, target, pool);
    }
    target += bytes;
  }
  return OkStatus();
}

Status MakeCopy(const Program& program, const Copy& copy, const Weights& weights, std::byte* target,
                device::ThreadPool& pool) {
  const Value& v = program.value(copy.weight);
  if (!v.stack.empty()) return MakeStack(program, copy, weights, target, pool);
  if (!v.assembly) {
    copy.packing->pack(ViewOf(copy, weights.data(copy.weight)), target, pool);
    return OkStatus();
  }
  if (copy.packing == nullptr) return Assemble(program, copy.weight, weights, target, pool);
  PM_ASSIGN_OR_RETURN(const LazyMemory rows, LazyMemory::Allocate(v.Bytes({}), "a weight"));
  PM_RETURN_IF_ERROR(Assemble(program, copy.weight, weights, rows.data(), pool));
  copy.packing->pack(ViewOf(copy, rows.data()), target, pool);
  return OkStatus();
}

Status Pack(const Program& program, const Layout& layout, const Weights& weights, std::byte* target,
            device::ThreadPool& pool) {
  for (const Copy& copy : layout.copies) {
    PM_RETURN_IF_ERROR(MakeCopy(program, copy, weights, target + copy.offset, pool));
  }
  return OkStatus();
}

void CopyBytes(const std::byte* from, std::byte* to, int64_t bytes, device::ThreadPool& pool) {
  pool.ParallelFor(bytes, /*grain=*/int64_t{1} << 20, [&](int64_t begin, int64_t end, int) {
    std::copy(from + begin, from + end, to + begin);
  });
}

}  // namespace

PackedBytes CountPackedBytes(const Program& program, std::span<const ops::Kernel* const> rows) {
  return Layout(program, rows).bytes;
}

StatusOr<PackedWeights> PackedWeights::Make(const Program& program,
                                            std::span<const ops::Kernel* const> rows,
                                            const Weights& weights, const PackCache* cache,
                                            device::ThreadPool& pool,
                                            const device::MemoryPlacement& placement) {
  const Layout layout(program, rows);
  PackedWeights packed;
  if (layout.copies.empty()) return packed;
  const int64_t bytes = layout.bytes.packed_bytes;
  Digest128 key;
  if (cache != nullptr) {
    packed.file_digests_ = WeightDigests(program, weights, cache->digests(), pool);
    key = KeyOf(program, layout, packed.file_digests_);
    StatusOr<PackCache::Entry> found = cache->Find(key, bytes, pool);
    if (found.ok()) packed.mapped_ = *std::move(found);
    if (found.status().code() == StatusCode::kDataLoss) packed.damage_ = found.status();
  }
  packed.from_cache_ = packed.mapped_.has_value();
  const bool placed = placement.kind != device::MemoryPlacement::Kind::kAnywhere;
  if (!packed.from_cache_ || packed.mapped_->better_copied || placed) {
    PM_ASSIGN_OR_RETURN(packed.memory_, LazyMemory::Allocate(bytes, "packed weights", placement));
    if (packed.from_cache_) {
      CopyBytes(packed.mapped_->bytes.data(), packed.memory_.data(), bytes, pool);
      packed.mapped_.reset();
    } else {
      PM_RETURN_IF_ERROR(Pack(program, layout, weights, packed.memory_.data(), pool));
    }
  }
  if (cache != nullptr && !packed.from_cache_) {
    packed.store_status_ = cache->Store(key, packed.memory_.bytes(), pool);
  }
  const std::byte* base = packed.mapped_ ? packed.mapped_->bytes.data() : packed.memory_.data();
  for (const Use& use : layout.uses) {
    const Copy& copy = layout.copies[use.copy];
    packed.data_[{use.op, use.input}] = {base + copy.offset, copy.packing != nullptr};
  }
  packed.read_by_ = ReadFromEndToEnd(layout, base, rows.size());
  weights.DropPages();
  return packed;
}

}  // namespace pagemill::program
