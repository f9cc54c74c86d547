#include "cc/program/weights/packed_weights.h"

#include <algorithm>
#include <array>
#include <deque>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "cc/base/xxh3.h"
#include "cc/ops/quantized/packed_integers.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/program/operand_views.h"
#include "cc/program/weights/weight_digests.h"

namespace pagemill::program {
namespace {

struct Copy {
  const ops::WeightPacking* packing;  // null: row by row
  ValueId weight;
  TensorView view;  // no data yet; its parts, if it has some, are the layout's
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
                    const TensorView& view = copies[uses.back().copy].view;
                    if (ops::PackedView(*packing, view).parts == nullptr) return;
                    KeepParts(weight, /*values=*/false);
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
                    } else if (program_.value(weight).quantized) {
                      stored_quantized.insert(weight);
                      KeepParts(weight, /*values=*/true);
                    } else if (program_.value(weight).IsMade()) {
                      uses.push_back({op, input, CopyOf(weight, nullptr), false});
                    }
                  });
  }

  std::vector<Copy> copies;
  std::vector<Use> uses;
  std::map<ValueId, size_t> parts;     // stacks that are parts of operands: their copies
  std::set<ValueId> stored_quantized;  // that some kernel reads with all parts
  PackedBytes bytes;

 private:
  size_t CopyOf(ValueId weight, const ops::WeightPacking* packing) {
    const std::string_view order = packing == nullptr ? std::string_view() : packing->layout;
    const auto [found, added] =
        known_.try_emplace({StoredRange(program_, weight), order}, copies.size());
    if (!added) return found->second;
    const Value& v = program_.value(weight);
    copies.push_back({packing, weight, MakeView(v, {}, nullptr), bytes.packed_bytes});
    if (v.quantized) {
      const auto no_data = [](ValueId) { return nullptr; };
      copies.back().view.parts = &quantized_.emplace_back(MakeParts(program_, v, no_data));
    }
    bytes.packed_bytes += copies.back().bytes();
    CountStored(weight);
    return found->second;
  }

  // Kernels read parts of `weight` beside what is packed of it: stacks in one piece.
  void KeepParts(ValueId weight, bool values) {
    const Quantized& q = *program_.value(weight).quantized;
    for (ValueId part : q.parts()) {
      if (part == kNoValue || (part == q.values && !values)) continue;
      if (!program_.value(part).stack.empty()) parts[part] = CopyOf(part, nullptr);
    }
  }

  // What is in files of the weight, or of what it is made of.
  void CountStored(ValueId weight) {
    const Value& v = program_.value(weight);
    if (v.quantized) {
      for (ValueId part : v.quantized->parts()) {
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
  std::deque<QuantizedParts> quantized_;  // of copies
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

// Which bytes a weight has, or is made of and how. `all`: the copy holds all parts of a quantized
// weight, not its values alone.
std::string RecipeText(const Program& program, ValueId weight, bool all,
                       const std::vector<Digest128>& digests) {
  const Value& v = program.value(weight);
  std::string text;
  if (v.quantized) {
    if (!all) return RecipeText(program, v.quantized->values, all, digests);
    const QuantizedFormat& f = v.quantized->format;
    text.append(" ").append(ops::kPackedIntegersVersion).append(" ").append(NameOf(f.layout));
    for (int64_t number : {f.block_columns, f.first_row, f.first_column, f.row_step}) {
      text += " " + std::to_string(number);
    }
    for (ValueId part : v.quantized->parts()) {
      text += part == kNoValue ? " -"
                               : " " + std::string(Info(program.value(part).dtype).name) +
                                     RecipeText(program, part, all, digests);
    }
    return text;
  }
  if (v.stack.empty()) return SourceText(program, weight, digests);
  text += " stack " + std::to_string(v.stack.size());
  for (ValueId part : v.stack) text += RecipeText(program, part, all, digests);
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
    const bool all =
        copy.packing != nullptr && ops::PackedView(*copy.packing, view).parts == nullptr;
    text += RecipeText(program, copy.weight, all, digests) + "\n";
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

// The matrix `weight`, which may be some columns of a wider one, row after row.
void CopyRows(const Program& program, ValueId weight, const Weights& weights, std::byte* target,
              device::ThreadPool& pool) {
  const Value& v = program.value(weight);
  const std::byte* const from = weights.data(weight);
  const int64_t stride = v.RowStrideBytes(), row = RowBytes(v.dtype, v.shape.RowElements());
  pool.ParallelFor(v.shape.dims[0], /*grain=*/64, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      std::copy_n(from + r * stride, row, target + r * row);
    }
  });
}

// The weight row after row: its own bytes if it lies so, else a copy in `rows`.
StatusOr<const std::byte*> DenseRows(const Program& program, ValueId weight, const Weights& weights,
                                     LazyMemory* rows, device::ThreadPool& pool) {
  if (program.value(weight).weight.row_stride == 0) return weights.data(weight);
  if (rows->bytes().empty()) {
    PM_ASSIGN_OR_RETURN(*rows,
                        LazyMemory::Allocate(program.value(weight).Bytes({}), "a part of a stack"));
  }
  CopyRows(program, weight, weights, rows->data(), pool);
  return rows->data();
}

// A packed stack is its packed parts, one after the other (ops::WeightPacking).
Status MakeStack(const Program& program, const Copy& copy, const Weights& weights,
                 std::byte* target, device::ThreadPool& pool) {
  TensorView part = copy.view;
  part.shape[0] = 1;
  const int64_t bytes = copy.packing == nullptr ? part.row_stride_bytes : copy.packing->bytes(part);
  LazyMemory rows;
  for (ValueId id : program.value(copy.weight).stack) {
    if (copy.packing == nullptr) {
      CopyRows(program, id, weights, target, pool);
    } else {
      PM_ASSIGN_OR_RETURN(const std::byte* data, DenseRows(program, id, weights, &rows, pool));
      part.data = const_cast<std::byte*>(data);
      PM_RETURN_IF_ERROR(copy.packing->pack(part, target, pool));
    }
    target += bytes;
  }
  return OkStatus();
}

// Matrix `matrix` of a part of a stack of quantized matrices, as a stack of one. A part that all of
// them share stays as it is.
StatusOr<TensorView> PartOfMatrix(const Program& program, ValueId part,
                                  const QuantizedFormat& format, int64_t matrix,
                                  const Weights& weights, LazyMemory* rows,
                                  device::ThreadPool& pool) {
  if (part == kNoValue) return TensorView{};
  const Value& v = program.value(part);
  TensorView view = MakeView(v, {}, const_cast<std::byte*>(weights.data(part)));
  if (format.row_step > 0) return view;
  if (v.stack.empty()) {
    view.data = view.Row<std::byte>(matrix);
  } else {
    PM_ASSIGN_OR_RETURN(
        const std::byte* data,
        DenseRows(program, v.stack[static_cast<size_t>(matrix)], weights, rows, pool));
    view.data = const_cast<std::byte*>(data);
  }
  view.shape[0] = 1;
  return view;
}

Status MakeQuantizedStack(const Program& program, const Copy& copy, const Weights& weights,
                          std::byte* target, device::ThreadPool& pool) {
  const Quantized& q = *program.value(copy.weight).quantized;
  std::array<LazyMemory, 4> rows;
  TensorView view = copy.view;
  view.shape[0] = 1;
  for (int64_t e = 0; e < copy.view.shape[0]; ++e) {
    std::array<TensorView, 4> parts;
    for (size_t i = 0; i < parts.size(); ++i) {
      PM_ASSIGN_OR_RETURN(
          parts[i], PartOfMatrix(program, q.parts()[i], q.format, e, weights, &rows[i], pool));
    }
    QuantizedParts of_matrix = {q.format, parts[0], parts[1], parts[2], parts[3]};
    of_matrix.format.first_row += e * q.format.row_step;
    view.parts = &of_matrix;
    view.data = of_matrix.values.data;
    PM_RETURN_IF_ERROR(copy.packing->pack(view, target, pool));
    target += copy.packing->bytes(view);
  }
  return OkStatus();
}

Status MakeCopy(const Program& program, const Copy& copy, const Weights& weights, std::byte* target,
                device::ThreadPool& pool) {
  const Value& v = program.value(copy.weight);
  if (!v.stack.empty()) return MakeStack(program, copy, weights, target, pool);
  if (!v.quantized) {
    return copy.packing->pack(ViewOf(copy, weights.data(copy.weight)), target, pool);
  }
  if (v.shape.rank == 3) return MakeQuantizedStack(program, copy, weights, target, pool);
  const QuantizedParts parts =
      MakeParts(program, v, [&](ValueId part) { return weights.data(part); });
  TensorView view = ViewOf(copy, weights.data(v.quantized->values));
  view.parts = &parts;
  return copy.packing->pack(view, target, pool);
}

// Says of which weight an error is.
Status OfWeight(const Value& weight, const Status& status) {
  if (status.ok()) return status;
  return {status.code(), "weight '" + weight.name + "' " + status.message()};
}

Status Pack(const Program& program, const Layout& layout, const Weights& weights, std::byte* target,
            device::ThreadPool& pool) {
  for (const Copy& copy : layout.copies) {
    PM_RETURN_IF_ERROR(OfWeight(program.value(copy.weight),
                                MakeCopy(program, copy, weights, target + copy.offset, pool)));
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

// Kernels trust the numbers of weights that they read with all parts; packing has checked others.
Status PackedWeights::CheckStored(const Program& program, const std::set<ValueId>& quantized,
                                  const Weights& weights) const {
  for (ValueId id : quantized) {
    const Value& v = program.value(id);
    const QuantizedParts parts = MakeParts(program, v, [&](ValueId part) {
      const std::byte* copy = this->part(part);
      return copy != nullptr ? copy : weights.data(part);
    });
    TensorView view = MakeView(v, {}, parts.values.data);
    view.parts = &parts;
    if (!ops::HasPackedIntegers(view)) continue;
    for (int64_t e = 0; e < (view.rank == 3 ? view.shape[0] : 1); ++e) {
      PM_RETURN_IF_ERROR(OfWeight(v, ops::PackedIntegers(view, e).CheckNumbers()));
    }
  }
  return OkStatus();
}

StatusOr<PackedWeights> PackedWeights::Make(const Program& program,
                                            std::span<const ops::Kernel* const> rows,
                                            const Weights& weights, const PackCache* cache,
                                            device::ThreadPool& pool,
                                            const device::MemoryPlacement& placement) {
  const Layout layout(program, rows);
  PackedWeights packed;
  if (layout.copies.empty()) {
    PM_RETURN_IF_ERROR(packed.CheckStored(program, layout.stored_quantized, weights));
    return packed;
  }
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
  for (const auto& [part, copy] : layout.parts) {
    packed.parts_[part] = base + layout.copies[copy].offset;
  }
  PM_RETURN_IF_ERROR(packed.CheckStored(program, layout.stored_quantized, weights));
  packed.read_by_ = ReadFromEndToEnd(layout, base, rows.size());
  weights.DropPages();
  return packed;
}

}  // namespace pagemill::program
