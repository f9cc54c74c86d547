#include "cc/program/weights/packed_layout.h"

#include <string>
#include <tuple>
#include <utility>

#include "cc/program/operand_views.h"
#include "cc/program/weights/weight_recipe.h"

namespace pagemill::program {
namespace {

// Calls f(op, input, weight, packing) for each operand that is a weight; packing is null if its
// kernel reads it as stored.
template <class F>
void ForEachWeight(const Program& program, std::span<const ops::Kernel* const> kernels,
                   const F& f) {
  for (size_t op = 0; op < kernels.size(); ++op) {
    const std::vector<ValueId>& inputs = program.ops()[op].inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == kNoValue || program.value(inputs[i]).kind != ValueKind::kWeight) continue;
      f(op, i, inputs[i], ops::PackingOf(*kernels[op], i));
    }
  }
}

// True if the kernel reads only the values of a quantized weight from the copy, and the other parts
// from elsewhere.
bool HasValuesAlone(const ops::WeightPacking& packing, const TensorView& view) {
  return ops::PackedView(packing, view).parts != nullptr;
}

}  // namespace

int64_t PackedCopy::bytes() const {
  constexpr int64_t kAlignment = 64;
  if (packing != nullptr) return packing->bytes(view);
  return (view.shape[0] * view.row_stride_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::string ContentOf(const Program& program, const PackedCopy& copy,
                      std::span<const std::string> file_names) {
  const TensorView& view = copy.view;
  std::string text(copy.packing == nullptr ? "rows" : copy.packing->layout);
  text.append(" ").append(Info(view.dtype).name);
  for (int64_t number : {view.shape[0], view.RowElements(), view.row_stride_bytes}) {
    text += " " + std::to_string(number);
  }
  const bool all = copy.packing != nullptr && !HasValuesAlone(*copy.packing, view);
  return text + WeightRecipe(program, copy.weight, all ? WeightParts::kAll : WeightParts::kValues,
                             file_names);
}

PackedLayout::PackedLayout(const Program& program, std::span<const ops::Kernel* const> kernels,
                           FindShared find_shared)
    : program_(program), find_shared_(std::move(find_shared)) {
  ForEachWeight(program, kernels,
                [this](size_t op, size_t input, ValueId weight, const ops::WeightPacking* packing) {
                  if (packing != nullptr && !packing->follows) AddUse(op, input, weight, *packing);
                });
  ForEachWeight(program, kernels,
                [this](size_t op, size_t input, ValueId weight, const ops::WeightPacking* packing) {
                  if (packing == nullptr || packing->follows)
                    AddFollower(op, input, weight, packing);
                });
}

void PackedLayout::AddUse(size_t op, size_t input, ValueId weight,
                          const ops::WeightPacking& packing) {
  // Kernels read only those matrices of a stack that a step chooses.
  const bool end_to_end = program_.value(weight).shape.rank < 3;
  uses_.push_back({op, input, CopyOf(weight, &packing), end_to_end});
  if (HasValuesAlone(packing, copies_[uses_.back().copy].view)) KeepParts(weight, /*values=*/false);
}

// For an operand whose kernel uses another operand's copy if there is one, and otherwise reads the
// weight as stored.
void PackedLayout::AddFollower(size_t op, size_t input, ValueId weight,
                               const ops::WeightPacking* packing) {
  const auto found = packing == nullptr
                         ? known_.end()
                         : known_.find({StoredRange(program_, weight), packing->layout});
  if (found != known_.end()) {
    uses_.push_back({op, input, found->second, false});
  } else if (program_.value(weight).quantized) {
    stored_quantized_.insert(weight);
    KeepParts(weight, /*values=*/true);
  } else if (program_.value(weight).NeedsRows()) {
    uses_.push_back({op, input, CopyOf(weight, nullptr), false});
  }
}

size_t PackedLayout::CopyOf(ValueId weight, const ops::WeightPacking* packing) {
  const std::string_view order = packing == nullptr ? std::string_view() : packing->layout;
  const auto [found, added] =
      known_.try_emplace({StoredRange(program_, weight), order}, copies_.size());
  if (!added) return found->second;
  const Value& v = program_.value(weight);
  PackedCopy copy{.packing = packing, .weight = weight, .view = MakeView(v, {}, nullptr)};
  if (v.quantized) {
    const auto no_data = [](ValueId) { return nullptr; };
    copy.view.parts = &quantized_.emplace_back(MakeParts(program_, v, no_data));
  }
  copy.shared = find_shared_(copy);
  if (copy.shared == nullptr) {
    copy.offset = bytes_.packed_bytes;
    bytes_.packed_bytes += copy.bytes();
    CountStored(weight);
  }
  copies_.push_back(copy);
  return found->second;
}

// Records the parts of `weight` that kernels read besides the packed copy: stacks in one piece.
void PackedLayout::KeepParts(ValueId weight, bool values) {
  const Quantized& q = *program_.value(weight).quantized;
  for (ValueId part : q.parts()) {
    if (part == kNoValue || (part == q.values && !values)) continue;
    if (!program_.value(part).stack.empty()) parts_[part] = CopyOf(part, nullptr);
  }
}

// Counts the stored bytes of the weight or of its components.
void PackedLayout::CountStored(ValueId weight) {
  const Value& v = program_.value(weight);
  if (v.quantized) {
    for (ValueId part : v.quantized->parts()) {
      if (part != kNoValue) CountStored(part);
    }
  }
  for (ValueId part : v.stack) CountStored(part);
  if (v.IsMade()) return;
  const ByteRange range = StoredRange(program_, weight);
  if (stored_.insert(range).second) bytes_.stored_bytes += std::get<2>(range);
}

}  // namespace pagemill::program
