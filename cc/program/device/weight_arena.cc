#include "cc/program/device/weight_arena.h"

#include <algorithm>
#include <array>
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

}  // namespace

WeightArena::WeightArena(const Program& program, std::span<const ops::Kernel* const> kernels)
    : program_(program), packed_(program, kernels) {
  for (const PackedCopy& copy : packed_.copies()) AddCopy(copy);
  for (const PackedUse& use : packed_.uses()) {
    operands_[{use.op, use.input}] = {
        .offset = copy_offsets_[use.copy],
        .reordered = packed_.copies()[use.copy].packing != nullptr};
  }
  for (size_t op = 0; op < kernels.size(); ++op) {
    const std::vector<ValueId>& inputs = program.ops()[op].inputs;
    std::vector<Stored> stored;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == kNoValue || program.value(inputs[i]).kind != ValueKind::kWeight) continue;
      AddOperand(op, i, *kernels[op], stored);
    }
    std::ranges::stable_sort(stored, {}, &Stored::kind);
    int last = -1;
    for (const auto& [kind, weight, operand] : stored) {
      const int64_t offset = Store(weight, kind == last ? kFollowingAlignment : kAlignment);
      last = kind;
      if (operand == nullptr) {
        parts_[weight] = offset;
      } else {
        operand->offset = offset;
      }
    }
  }
}

void WeightArena::AddCopy(const PackedCopy& copy) {
  const Value& v = program_.value(copy.weight);
  if (copy.packing != nullptr) {
    copy_offsets_.push_back(Append({.source = Piece::Source::kPacked,
                                    .weight = copy.weight,
                                    .copy = &copy,
                                    .bytes = copy.bytes()},
                                   kAlignment));
    return;
  }
  int64_t alignment = kAlignment;  // of the first matrix: the others follow
  for (ValueId id : v.stack.empty() ? std::vector<ValueId>{copy.weight} : v.stack) {
    const int64_t offset = Append({.source = Piece::Source::kRows,
                                   .weight = id,
                                   .bytes = program_.value(id).Bytes({})},
                                  alignment);
    if (alignment == kAlignment) copy_offsets_.push_back(offset);
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
      parts_[part] = copy_offsets_[copy->second];
    } else {
      stored.push_back({kind, part, nullptr});
    }
  }
}

// The offset of a weight as it is in its file.
int64_t WeightArena::Store(ValueId weight, int64_t alignment) {
  const auto [found, is_new] = stored_.try_emplace(StoredRange(program_, weight));
  if (is_new) {
    found->second =
        Append({.weight = weight, .bytes = program_.value(weight).SpanBytes()}, alignment);
  }
  return found->second;
}

int64_t WeightArena::Append(Piece piece, int64_t alignment) {
  piece.offset = (bytes_ + alignment - 1) / alignment * alignment;
  bytes_ = piece.offset + piece.bytes;
  pieces_.push_back(piece);
  return piece.offset;
}

}  // namespace pagemill::program
