#include "cc/program/operand_views.h"

#include <algorithm>

namespace pagemill::program {
namespace {

// Placeholder data for operands of calls that are only checked: not null, and aligned like real
// data.
alignas(64) constexpr std::byte kPlaceholder[64] = {};

}  // namespace

std::string ViewText(const TensorView& view) {
  if (view.rank == 0) return "-";
  std::string text(Info(view.dtype).name);
  if (view.parts != nullptr) text.append(":").append(NameOf(view.parts->format.layout));
  for (int32_t i = 0; i < view.rank; ++i) {
    text += (i == 0 ? "[" : ",") + std::to_string(view.shape[static_cast<size_t>(i)]);
  }
  return text + "]";
}

TensorView MakeView(const Value& value, const StepSizes& sizes, void* data) {
  TensorView view;
  view.data = data;
  view.dtype = value.dtype;
  view.rank = value.shape.rank;
  view.shape = value.shape.dims;
  view.shape[0] = value.shape.Rows(sizes);
  view.row_stride_bytes = value.RowStrideBytes();
  return view;
}

int64_t RowsOfEach(const Program& program, const Op& op) {
  if (op.inputs.empty() || op.inputs[0] == kNoValue) return 1;
  const Value& x = program.value(op.inputs[0]);
  // Rows of an input of the step may have gaps.
  if (x.kind != ValueKind::kActivation) return 1;
  if (op.name == "attention") {
    const bool of_tokens = x.shape.rank == 4 && x.shape.dim == Dim::kTokens;
    return of_tokens ? std::max<int64_t>(1, x.shape.dims[1]) : 1;
  }
  if (op.name != "linear" || op.inputs.size() < 2 || op.inputs[1] == kNoValue) return 1;
  const Value& w = program.value(op.inputs[1]);
  if (w.kind != ValueKind::kWeight || w.shape.rank != 2 || x.shape.rank < 3) return 1;
  // The last dimensions of x are what W multiplies.
  int64_t width = 1;
  int32_t inner = x.shape.rank;
  while (inner > 1 && width < w.shape.dims[1]) {
    width *= x.shape.dims[static_cast<size_t>(--inner)];
  }
  if (width != w.shape.dims[1]) return 1;
  return std::max<int64_t>(1, x.shape.RowElements() / width);
}

TensorView MakeOperandView(const Value& value, const StepSizes& sizes, int64_t rows_of_each,
                           void* data) {
  const TensorView view = MakeView(value, sizes, data);
  const int64_t elements = value.shape.RowElements();
  const bool divides = value.kind == ValueKind::kActivation && elements % rows_of_each == 0;
  if (rows_of_each == 1 || !divides) return view;
  TensorView rows =
      TensorView::Dense(data, value.dtype, {view.shape[0] * rows_of_each, elements / rows_of_each});
  if (view.rank < 3 || view.shape[1] != rows_of_each) return rows;
  // Those of the shape of the other dimensions.
  rows.rank = view.rank - 1;
  std::copy(view.shape.begin() + 2, view.shape.end(), rows.shape.begin() + 1);
  return rows;
}

QuantizedParts MakeParts(const Program& program, const Value& weight,
                         const std::function<const std::byte*(ValueId part)>& data) {
  const auto view = [&](ValueId id) {
    if (id == kNoValue) return TensorView{};
    return MakeView(program.value(id), {}, const_cast<std::byte*>(data(id)));
  };
  const Quantized& q = *weight.quantized;
  return {.format = q.format,
          .values = view(q.values),
          .scales = view(q.scales),
          .zeros = view(q.zeros),
          .groups = view(q.groups),
          .factor = view(q.factor)};
}

size_t TableOf(const Program& program, const Op& op, const KvLayout& layout) {
  for (ValueId id : op.inputs) {
    if (id == kNoValue || program.value(id).kind != ValueKind::kCache) continue;
    return static_cast<size_t>(layout.caches[static_cast<size_t>(id.value())].table);
  }
  return 0;
}

OperandViews::OperandViews(const Program& program, const Op& op, const StepSizes& sizes,
                           const KvLayout& layout) {
  std::byte* const data = const_cast<std::byte*>(kPlaceholder);
  const int64_t rows_of_each = RowsOfEach(program, op);
  const auto view = [&](ValueId id) {
    if (id == kNoValue) return TensorView{};
    const Value& value = program.value(id);
    if (value.kind != ValueKind::kCache) {
      TensorView view = MakeOperandView(value, sizes, rows_of_each, data);
      if (value.quantized) {
        view.parts = &parts_.emplace_back(MakeParts(program, value, [&](ValueId) { return data; }));
      }
      return view;
    }
    const KvLayout::Cache& place = layout.caches[static_cast<size_t>(id.value())];
    batch_.block_size = layout.BlockSizeOf(place);
    TensorView cache = CacheView(value, place, layout, data);
    cache.data = data;
    return cache;
  };
  const auto add = [&](const std::vector<ValueId>& ids, std::vector<TensorView>* views) {
    for (ValueId id : ids) views->push_back(view(id));
  };
  add(op.inputs, &inputs_);
  add(op.outputs, &outputs_);
  for (const ops::DimInfo& info : ops::kDims) {
    batch_.*info.size = static_cast<int32_t>(sizes.*info.bound);
  }
  call_ = {.inputs = inputs_, .outputs = outputs_, .attributes = &op.attributes, .batch = &batch_};
}

void OperandViews::Pack(const ops::Kernel& kernel) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const ops::WeightPacking* packing = ops::PackingOf(kernel, i);
    if (packing == nullptr || packing->follows || inputs_[i].rank == 0) continue;
    inputs_[i] = ops::PackedView(*packing, inputs_[i]);
  }
}

std::string OperandViews::ToString() const {
  std::string text;
  for (const TensorView& view : inputs_) text += ViewText(view) + " ";
  text += "->";
  for (const TensorView& view : outputs_) text += " " + ViewText(view);
  return text;
}

}  // namespace pagemill::program
