#include "cc/program/device/weight_arena.h"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "cc/program/operand_views.h"
#include "cc/tensor/quantized.h"

namespace pagemill::program {
namespace {

constexpr int64_t kAlignment = 256;         // bytes; satisfies vector loads of any device
constexpr int64_t kFollowingAlignment = 64;  // of what follows its kind: most have no gap then
constexpr int kVectors = std::tuple_size_v<decltype(Quantized().parts())>;  // behind kinds of parts

// True if a kernel that packs the weight reads some of its parts beside the copy.
bool ReadsParts(const Program& program, const Value& weight, const ops::WeightPacking& packing) {
  TensorView view = MakeView(weight, {}, nullptr);
  const QuantizedParts parts = MakeParts(program, weight, [](ValueId) { return nullptr; });
  view.parts = &parts;
  return ops::PackedView(packing, view).parts != nullptr;
}

// How much of an op's weights a step reads: the lowest class is offloaded first.
int ReadClass(const Op& op) {
  if (op.name == "embedding") return 0;       // a row per token
  if (op.name == "grouped_linear") return 1;  // the experts that are chosen
  return 2;                                   // everything
}

}  // namespace

// The pieces of an op's weights.
struct WeightArena::OpPieces {
  std::vector<size_t> pieces;
  int64_t bytes = 0;
  bool has_matrix = false;
  int read_class = 0;  // the highest of the ops that read one of the pieces
};

WeightArena::WeightArena(const Program& program, std::span<const ops::Kernel* const> kernels,
                         int64_t offload_bytes)
    : program_(program), packed_(program, kernels) {
  AddPieces(kernels);
  Offload(offload_bytes);
  PlacePieces();
}

void WeightArena::AddPieces(std::span<const ops::Kernel* const> kernels) {
  for (const PackedCopy& copy : packed_.copies()) AddCopy(copy);
  for (const PackedUse& use : packed_.uses()) {
    operands_[{use.op, use.input}] = {.piece = copies_[use.copy],
                                      .reordered = packed_.copies()[use.copy].packing != nullptr};
  }
  for (size_t op = 0; op < kernels.size(); ++op) {
    const std::vector<ValueId>& inputs = program_.ops()[op].inputs;
    std::vector<Stored> stored;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == kNoValue || program_.value(inputs[i]).kind != ValueKind::kWeight) continue;
      AddOperand(op, i, *kernels[op], stored);
    }
    std::ranges::stable_sort(stored, {}, &Stored::kind);
    int last = -1;
    for (const auto& [kind, weight, operand] : stored) {
      const size_t piece = Store(weight, kind == last ? kFollowingAlignment : kAlignment);
      last = kind;
      if (operand == nullptr) {
        parts_[weight] = piece;
      } else {
        operand->piece = piece;
      }
    }
  }
}

void WeightArena::AddCopy(const PackedCopy& copy) {
  const Value& v = program_.value(copy.weight);
  if (copy.packing != nullptr) {
    copies_.push_back(Append({.source = Piece::Source::kPacked,
                              .weight = copy.weight,
                              .copy = &copy,
                              .bytes = copy.bytes(),
                              .alignment = kAlignment}));
    return;
  }
  int64_t alignment = kAlignment;  // of the first matrix: the others follow
  for (ValueId id : v.stack.empty() ? std::vector<ValueId>{copy.weight} : v.stack) {
    const size_t piece = Append({.source = Piece::Source::kRows,
                                 .weight = id,
                                 .bytes = program_.value(id).Bytes({}),
                                 .alignment = alignment});
    if (alignment == kAlignment) copies_.push_back(piece);
    alignment = 1;
  }
}

void WeightArena::AddOperand(size_t op, size_t input, const ops::Kernel& kernel,
                             std::vector<Stored>& stored) {
  const ValueId id = program_.ops()[op].inputs[input];
  const Value& v = program_.value(id);
  const auto [found, as_stored] = operands_.try_emplace({op, input});
  if (as_stored && !v.IsMade()) {
    stored.push_back({v.shape.rank > 1 ? 0 : kVectors, id, &found->second});
  }
  if (!v.quantized) return;
  const ops::WeightPacking* const packing =
      found->second.reordered ? ops::PackingOf(kernel, input) : nullptr;
  if (packing != nullptr && !ReadsParts(program_, v, *packing)) return;
  int kind = -1;
  for (ValueId part : v.quantized->parts()) {
    ++kind;
    if (part == kNoValue || (packing != nullptr && part == v.quantized->values)) continue;
    const auto copy = packed_.parts().find(part);
    if (copy != packed_.parts().end()) {
      parts_[part] = copies_[copy->second];
    } else {
      stored.push_back({kind, part, nullptr});
    }
  }
}

// The piece of a weight as it is in its file.
size_t WeightArena::Store(ValueId weight, int64_t alignment) {
  const auto [found, is_new] = stored_.try_emplace(StoredRange(program_, weight));
  if (is_new) {
    found->second = Append(
        {.weight = weight, .bytes = program_.value(weight).SpanBytes(), .alignment = alignment});
  }
  return found->second;
}

size_t WeightArena::Append(Piece piece) {
  pieces_.push_back(piece);
  return pieces_.size() - 1;
}

std::vector<WeightArena::OpPieces> WeightArena::PiecesOfOps() const {
  std::vector<std::set<size_t>> indices(program_.ops().size());
  const auto add = [&](size_t op, size_t piece) {
    do {
      indices[op].insert(piece++);
    } while (piece < pieces_.size() && pieces_[piece].alignment == 1);  // of a stack
  };
  for (const auto& [key, operand] : operands_) {
    const auto [op, input] = key;
    if (operand.piece) add(op, *operand.piece);
    const Value& v = program_.value(program_.ops()[op].inputs[input]);
    if (!v.quantized) continue;
    for (ValueId part : v.quantized->parts()) {
      if (const auto found = parts_.find(part); found != parts_.end()) add(op, found->second);
    }
  }
  std::vector<int> classes(pieces_.size());
  for (size_t op = 0; op < indices.size(); ++op) {
    for (size_t i : indices[op]) classes[i] = std::max(classes[i], ReadClass(program_.ops()[op]));
  }
  std::vector<OpPieces> ops(indices.size());
  for (size_t op = 0; op < indices.size(); ++op) {
    for (size_t i : indices[op]) {
      const Piece& piece = pieces_[i];
      ops[op].pieces.push_back(i);
      ops[op].bytes += piece.bytes;
      ops[op].has_matrix |= program_.value(piece.weight).shape.rank > 1;
      ops[op].read_class = std::max(ops[op].read_class, classes[i]);
    }
  }
  return ops;
}

void WeightArena::Offload(int64_t offload_bytes) {
  std::vector<OpPieces> ops = PiecesOfOps();
  std::erase_if(ops, [](const OpPieces& op) { return !op.has_matrix; });
  std::ranges::stable_sort(ops, {},
                           [](const OpPieces& op) { return std::pair(op.read_class, -op.bytes); });
  std::set<size_t> seen;
  for (const OpPieces& op : ops) {
    const bool on_host = offloadable_bytes_ < offload_bytes;
    for (size_t piece : op.pieces) {
      if (!seen.insert(piece).second) continue;
      offloadable_bytes_ += pieces_[piece].bytes;
      pieces_[piece].place.on_host = on_host;
    }
  }
}

void WeightArena::PlacePieces() {
  for (Piece& piece : pieces_) {
    int64_t& end = piece.place.on_host ? host_bytes_ : bytes_;
    piece.place.offset = (end + piece.alignment - 1) / piece.alignment * piece.alignment;
    end = piece.place.offset + piece.bytes;
  }
}

}  // namespace pagemill::program
