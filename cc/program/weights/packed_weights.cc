#include "cc/program/weights/packed_weights.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "cc/base/xxh3.h"
#include "cc/ops/quantized/packed_integers.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/program/operand_views.h"
#include "cc/program/weights/packed_layout.h"
#include "cc/program/weights/weight_digests.h"
#include "cc/program/weights/weight_recipe.h"

namespace pagemill::program {
namespace {

// A digest of everything that determines the bytes and offsets of the copies.
Digest128 KeyOf(const Program& program, const PackedLayout& layout,
                std::span<const std::string> file_names) {
  std::string text;
  for (const PackedCopy& copy : layout.copies()) {
    if (copy.shared != nullptr) continue;
    text += std::to_string(copy.offset) + " " + ContentOf(program, copy, file_names) + "\n";
  }
  return Xxh3_128(text.data(), text.size());
}

// Per op, its packed operands in one piece; empty if they are not adjacent or only some rows are
// read.
std::vector<std::span<const std::byte>> ReadFromEndToEnd(const PackedLayout& layout,
                                                         const std::byte* base, size_t ops) {
  std::vector<std::span<const std::byte>> read_by(ops);
  std::vector<bool> apart(ops, false);
  for (const PackedUse& use : layout.uses()) {  // of an op, ascending
    const PackedCopy& copy = layout.copies()[use.copy];
    if (!use.end_to_end) continue;
    const std::span<const std::byte> bytes(copy.data(base), static_cast<size_t>(copy.bytes()));
    std::span<const std::byte>& all = read_by[use.op];
    apart[use.op] = apart[use.op] || (!all.empty() && all.data() + all.size() != bytes.data());
    all = all.empty() ? bytes : std::span(all.data(), all.size() + bytes.size());
  }
  for (size_t op = 0; op < ops; ++op) {
    if (apart[op]) read_by[op] = {};
  }
  return read_by;
}

// Copies rows `begin` to `end` of a matrix whose columns are not adjacent.
void GatherRows(const Value& v, const std::byte* from, int64_t begin, int64_t end,
                std::byte* target) {
  const int64_t columns = v.shape.RowElements(), element = RowBytes(v.dtype, 1);
  // The rows of a transposed matrix lie side by side.
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = begin; r < end; ++r) {
      std::copy_n(from + r * v.weight.row_stride + c * v.weight.column_stride, element,
                  target + (r * columns + c) * element);
    }
  }
}

// The weight in row-major order: its own bytes if it is dense, else a copy in `rows`.
StatusOr<const std::byte*> DenseRows(const Program& program, ValueId weight, const Weights& weights,
                                     LazyMemory* rows, device::ThreadPool& pool) {
  if (program.value(weight).weight.row_stride == 0) return weights.data(weight);
  if (rows->bytes().empty()) {
    PAGEMILL_ASSIGN_OR_RETURN(
        *rows, LazyMemory::Allocate(program.value(weight).Bytes({}), "a part of a stack"));
  }
  CopyMatrixRows(program, weight, weights, rows->data(), pool);
  return rows->data();
}

// A packed stack is the concatenation of its packed parts (ops::WeightPacking).
Status MakeStack(const Program& program, const PackedCopy& copy, const Weights& weights,
                 std::byte* target, device::ThreadPool& pool) {
  TensorView part = copy.view;
  part.shape[0] = 1;
  const int64_t bytes = copy.packing == nullptr ? part.row_stride_bytes : copy.packing->bytes(part);
  LazyMemory rows;
  for (ValueId id : program.value(copy.weight).stack) {
    if (copy.packing == nullptr) {
      CopyMatrixRows(program, id, weights, target, pool);
    } else {
      PAGEMILL_ASSIGN_OR_RETURN(const std::byte* data,
                                DenseRows(program, id, weights, &rows, pool));
      part.data = const_cast<std::byte*>(data);
      PAGEMILL_RETURN_IF_ERROR(copy.packing->pack(part, target, pool));
    }
    target += bytes;
  }
  return OkStatus();
}

// Matrix `matrix` of a part of a stack of quantized matrices, as a stack of one. A part shared by
// all matrices stays as it is.
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
    PAGEMILL_ASSIGN_OR_RETURN(
        const std::byte* data,
        DenseRows(program, v.stack[static_cast<size_t>(matrix)], weights, rows, pool));
    view.data = const_cast<std::byte*>(data);
  }
  view.shape[0] = 1;
  return view;
}

using RowsOfParts = std::array<LazyMemory, std::tuple_size_v<decltype(Quantized().parts())>>;

// All parts of matrix `matrix`; `rows` holds those that are not dense.
StatusOr<QuantizedParts> PartsOfMatrix(const Program& program, const Quantized& q, int64_t matrix,
                                       const Weights& weights, RowsOfParts& rows,
                                       device::ThreadPool& pool) {
  std::array<TensorView, std::tuple_size_v<RowsOfParts>> parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    PAGEMILL_ASSIGN_OR_RETURN(
        parts[i], PartOfMatrix(program, q.parts()[i], q.format, matrix, weights, &rows[i], pool));
  }
  QuantizedParts result = {q.format, parts[0], parts[1], parts[2], parts[3], parts[4]};
  result.format.first_row += matrix * q.format.row_step;
  return result;
}

Status MakeQuantizedStack(const Program& program, const PackedCopy& copy, const Weights& weights,
                          std::byte* target, device::ThreadPool& pool) {
  RowsOfParts rows;
  TensorView view = copy.view;
  view.shape[0] = 1;
  for (int64_t e = 0; e < copy.view.shape[0]; ++e) {
    PAGEMILL_ASSIGN_OR_RETURN(const QuantizedParts of_matrix,
                              PartsOfMatrix(program, *program.value(copy.weight).quantized, e,
                                            weights, rows, pool));
    view.parts = &of_matrix;
    view.data = of_matrix.values.data;
    PAGEMILL_RETURN_IF_ERROR(copy.packing->pack(view, target, pool));
    target += copy.packing->bytes(view);
  }
  return OkStatus();
}

// A transposed matrix: its rows, packed if a kernel wants that.
Status MakeTransposed(const Program& program, const PackedCopy& copy, const Weights& weights,
                      std::byte* target, device::ThreadPool& pool) {
  if (copy.packing == nullptr) {
    CopyMatrixRows(program, copy.weight, weights, target, pool);
    return OkStatus();
  }
  LazyMemory rows;
  TensorView view = copy.view;
  PAGEMILL_ASSIGN_OR_RETURN(const std::byte* data,
                            DenseRows(program, copy.weight, weights, &rows, pool));
  view.data = const_cast<std::byte*>(data);
  return copy.packing->pack(view, target, pool);
}

TensorView ViewOf(const PackedCopy& copy, const std::byte* data) {
  TensorView view = copy.view;
  view.data = const_cast<std::byte*>(data);
  return view;
}

Status MakeCopy(const Program& program, const PackedCopy& copy, const Weights& weights,
                std::byte* target, device::ThreadPool& pool) {
  const Value& v = program.value(copy.weight);
  if (!v.stack.empty()) return MakeStack(program, copy, weights, target, pool);
  if (v.weight.column_stride > 0) return MakeTransposed(program, copy, weights, target, pool);
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

// Adds the weight's name to an error.
Status OfWeight(const Value& weight, const Status& status) {
  if (status.ok()) return status;
  return {status.code(), "weight '" + weight.name + "' " + status.message()};
}

Status Pack(const Program& program, const PackedLayout& layout, const Weights& weights,
            std::byte* target, device::ThreadPool& pool) {
  for (const PackedCopy& copy : layout.copies()) {
    if (copy.shared != nullptr) continue;
    PAGEMILL_RETURN_IF_ERROR(MakePackedCopy(program, copy, weights, target + copy.offset, pool));
  }
  return OkStatus();
}

void CopyBytes(const std::byte* from, std::byte* to, int64_t bytes, device::ThreadPool& pool) {
  pool.ParallelFor(bytes, /*grain=*/int64_t{1} << 20, [&](int64_t begin, int64_t end, int) {
    std::copy(from + begin, from + end, to + begin);
  });
}

}  // namespace

PackedBytes CountPackedBytes(const Program& program, std::span<const ops::Kernel* const> kernels) {
  return PackedLayout(program, kernels).bytes();
}

void CopyMatrixRows(const Program& program, ValueId weight, const Weights& weights,
                    std::byte* target, device::ThreadPool& pool) {
  const Value& v = program.value(weight);
  const std::byte* const from = weights.data(weight);
  const int64_t stride = v.RowStrideBytes(), row = RowBytes(v.dtype, v.shape.RowElements());
  pool.ParallelFor(v.shape.dims[0], /*grain=*/64, [&](int64_t begin, int64_t end, int) {
    if (v.weight.column_stride > 0) return GatherRows(v, from, begin, end, target);
    for (int64_t r = begin; r < end; ++r) {
      std::copy_n(from + r * stride, row, target + r * row);
    }
  });
}

Status MakePackedCopy(const Program& program, const PackedCopy& copy, const Weights& weights,
                      std::byte* target, device::ThreadPool& pool) {
  return OfWeight(program.value(copy.weight), MakeCopy(program, copy, weights, target, pool));
}

Status CheckStoredWeights(const Program& program, const std::set<ValueId>& quantized,
                          const Weights& weights, device::ThreadPool& pool) {
  for (ValueId id : quantized) {
    const Value& v = program.value(id);
    TensorView view = MakeView(v, {}, nullptr);
    const int64_t matrices = view.rank == 3 ? view.shape[0] : 1;
    RowsOfParts rows;
    for (int64_t e = 0; e < matrices; ++e) {
      QuantizedParts parts =
          MakeParts(program, v, [&](ValueId part) { return weights.data(part); });
      if (view.rank == 3) {
        PAGEMILL_ASSIGN_OR_RETURN(parts,
                                  PartsOfMatrix(program, *v.quantized, e, weights, rows, pool));
        view.shape[0] = 1;
      }
      view.parts = &parts;
      view.data = parts.values.data;
      if (!ops::HasPackedIntegers(view)) break;
      PAGEMILL_RETURN_IF_ERROR(OfWeight(v, ops::PackedIntegers(view, 0).CheckNumbers()));
    }
  }
  return OkStatus();
}

// Finds or makes the copies that are not shared with another program.
StatusOr<const std::byte*> PackedWeights::MakeCopies(const Program& program,
                                                     const PackedLayout& layout,
                                                     const Weights& weights, const PackCache* cache,
                                                     device::ThreadPool& pool,
                                                     const device::MemoryPlacement& placement) {
  const int64_t bytes = layout.bytes().packed_bytes;
  if (bytes == 0) return nullptr;
  Digest128 key;
  if (cache != nullptr) {
    file_digests_ = WeightDigests(program, weights.files(), cache->digests(), pool);
    key = KeyOf(program, layout, FileNames(file_digests_));
    StatusOr<PackCache::Entry> found = cache->Find(key, bytes, pool);
    if (found.ok()) mapped_ = *std::move(found);
    if (found.status().code() == StatusCode::kDataLoss) damage_ = found.status();
  }
  from_cache_ = mapped_.has_value();
  const bool placed = placement.kind != device::MemoryPlacement::Kind::kAnywhere;
  if (!from_cache_ || mapped_->better_copied || placed) {
    PAGEMILL_ASSIGN_OR_RETURN(memory_, LazyMemory::Allocate(bytes, "packed weights", placement));
    if (from_cache_) {
      CopyBytes(mapped_->bytes.data(), memory_.data(), bytes, pool);
      mapped_.reset();
    } else {
      PAGEMILL_RETURN_IF_ERROR(Pack(program, layout, weights, memory_.data(), pool));
    }
  }
  if (cache != nullptr && !from_cache_) store_status_ = cache->Store(key, memory_.bytes(), pool);
  return mapped_ ? mapped_->bytes.data() : memory_.data();
}

StatusOr<PackedWeights> PackedWeights::Make(const Program& program,
                                            std::span<const ops::Kernel* const> kernels,
                                            const Weights& weights, const PackCache* cache,
                                            device::ThreadPool& pool,
                                            const device::MemoryPlacement& placement,
                                            const PackedWeights* shared) {
  const std::vector<std::string> names = FileNames(program, weights);
  const auto find_shared = [&](const PackedCopy& copy) -> const std::byte* {
    if (shared == nullptr) return nullptr;
    const auto found = shared->copies_.find(ContentOf(program, copy, names));
    return found == shared->copies_.end() ? nullptr : found->second;
  };
  const PackedLayout layout(program, kernels, find_shared);
  PackedWeights packed;
  PAGEMILL_ASSIGN_OR_RETURN(const std::byte* base,
                            packed.MakeCopies(program, layout, weights, cache, pool, placement));
  packed.Index(program, layout, names, base, kernels.size());
  PAGEMILL_RETURN_IF_ERROR(CheckStoredWeights(program, layout.stored_quantized(), weights, pool));
  if (!layout.copies().empty()) weights.DropPages();
  return packed;
}

void PackedWeights::Index(const Program& program, const PackedLayout& layout,
                          std::span<const std::string> file_names, const std::byte* base,
                          size_t num_ops) {
  for (const PackedCopy& copy : layout.copies()) {
    shares_ = shares_ || copy.shared != nullptr;
    copies_[ContentOf(program, copy, file_names)] = copy.data(base);
  }
  for (const PackedUse& use : layout.uses()) {
    const PackedCopy& copy = layout.copies()[use.copy];
    data_[{use.op, use.input}] = {copy.data(base), copy.packing != nullptr};
  }
  for (const auto& [part, copy] : layout.parts()) parts_[part] = layout.copies()[copy].data(base);
  read_by_ = ReadFromEndToEnd(layout, base, num_ops);
}

// True if each operand of the layout reads its copy at the offset where it lies here.
bool PackedWeights::IsLaidOutAs(const PackedLayout& layout) const {
  if (layout.uses().size() != data_.size() || layout.parts().size() != parts_.size()) return false;
  const auto is_at = [&](const std::byte* data, size_t copy) {
    return data != nullptr && data == layout.copies()[copy].data(base());
  };
  return std::ranges::all_of(
             layout.uses(),
             [&](const PackedUse& use) { return is_at(data(use.op, use.input), use.copy); }) &&
         std::ranges::all_of(layout.parts(), [&](const auto& entry) {
           return is_at(part(entry.first), entry.second);
         });
}

// Packs the copies whose content differs from that of `loaded`, whose memory they will take over.
Status PackedWeights::PackBeside(const Program& program, const PackedLayout& layout,
                                 const Weights& weights, const PackedWeights& loaded,
                                 device::ThreadPool& pool) {
  const std::vector<std::string> names = FileNames(program, weights);
  std::vector<const PackedCopy*> changed;
  int64_t bytes = 0;
  for (const PackedCopy& copy : layout.copies()) {
    const auto found = loaded.copies_.find(ContentOf(program, copy, names));
    if (found != loaded.copies_.end() && found->second == copy.data(loaded.base())) continue;
    changed.push_back(&copy);
    bytes += copy.bytes();
  }
  PAGEMILL_ASSIGN_OR_RETURN(beside_, LazyMemory::Allocate(bytes, "packed weights"));
  std::byte* packed = beside_.data();
  for (const PackedCopy* copy : changed) {
    PAGEMILL_RETURN_IF_ERROR(MakePackedCopy(program, *copy, weights, packed, pool));
    const auto size = static_cast<size_t>(copy->bytes());
    pending_.push_back({.offset = copy->offset, .bytes = {packed, size}});
    packed += size;
  }
  return OkStatus();
}

StatusOr<PackedWeights> PackedWeights::MakeOver(const Program& program,
                                                std::span<const ops::Kernel* const> kernels,
                                                const Weights& weights, const PackedWeights& loaded,
                                                device::ThreadPool& pool,
                                                const device::MemoryPlacement& placement) {
  const PackedLayout layout(program, kernels);
  if (!loaded.IsLaidOutAs(layout)) {
    return InvalidArgument(
        "weights that were one tensor are several, or the other way round; update all of them from "
        "a checkpoint");
  }
  PackedWeights packed;
  PAGEMILL_RETURN_IF_ERROR(packed.PackBeside(program, layout, weights, loaded, pool));
  PAGEMILL_RETURN_IF_ERROR(
      CheckStoredWeights(program, layout.stored_quantized(), weights, pool));
  if (loaded.mapped_) {  // read-only, and other processes may share it
    PAGEMILL_ASSIGN_OR_RETURN(packed.memory_, LazyMemory::Allocate(layout.bytes().packed_bytes,
                                                                   "packed weights", placement));
    CopyBytes(loaded.base(), packed.memory_.data(), layout.bytes().packed_bytes, pool);
  }
  const std::byte* const base = loaded.mapped_ ? packed.memory_.data() : loaded.base();
  packed.Index(program, layout, FileNames(program, weights), base, kernels.size());
  if (!layout.copies().empty()) weights.DropPages();
  return packed;
}

void PackedWeights::TakeOver(PackedWeights* loaded, device::ThreadPool& pool) {
  if (memory_.bytes().empty()) memory_ = std::move(loaded->memory_);
  for (const Pending& copy : pending_) {
    CopyBytes(copy.bytes.data(), memory_.data() + copy.offset,
              static_cast<int64_t>(copy.bytes.size()), pool);
  }
  pending_.clear();
  beside_ = {};
  *loaded = {};
}

}  // namespace pagemill::program
