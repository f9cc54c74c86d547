#include "cc/program/operand_views.h"

#include "cc/ops/kv_page.h"

namespace pagemill::program {
namespace {

// What the operands of a call that is only checked point to: not null, and aligned like real ones.
alignas(64) constexpr std::byte kPlaceholder[64] = {};

std::string ViewText(const TensorView& view) {
  if (view.rank == 0) return "-";
  std::string text(Info(view.dtype).name);
  for (int32_t i = 0; i < view.rank; ++i) {
    text += (i == 0 ? "[" : ",") + std::to_string(view.shape[static_cast<size_t>(i)]);
  }
  return text + "]";
}

int64_t BlockElements(const CacheSpec& cache, const CacheGeometry& geometry) {
  return ops::KvBlockElements(geometry.dtype, {cache.kv_heads, cache.head_dim},
                              geometry.block_size);
}

}  // namespace

int64_t CacheBlockBytes(const CacheSpec& cache, const CacheGeometry& geometry) {
  return RowBytes(geometry.dtype, BlockElements(cache, geometry));
}

TensorView MakeView(const Value& value, const StepSizes& sizes, const CacheGeometry& geometry,
                    void* data) {
  if (value.kind == ValueKind::kCache) {
    return TensorView::Dense(data, geometry.dtype,
                             {geometry.num_blocks, BlockElements(value.cache, geometry)});
  }
  TensorView view;
  view.data = data;
  view.dtype = value.dtype;
  view.rank = value.shape.rank;
  view.shape = value.shape.dims;
  view.shape[0] = value.shape.Rows(sizes);
  view.row_stride_bytes = value.RowStrideBytes();
  return view;
}

OperandViews::OperandViews(const Program& program, const Op& op, const StepSizes& sizes,
                           const CacheGeometry& geometry) {
  const auto add = [&](const std::vector<ValueId>& ids, std::vector<TensorView>* views) {
    for (ValueId id : ids) {
      views->push_back(id == kNoValue ? TensorView{}
                                      : MakeView(program.value(id), sizes, geometry,
                                                 const_cast<std::byte*>(kPlaceholder)));
    }
  };
  add(op.inputs, &inputs_);
  add(op.outputs, &outputs_);
  batch_.num_tokens = static_cast<int32_t>(sizes.tokens);
  batch_.num_requests = static_cast<int32_t>(sizes.requests);
  batch_.num_logits_rows = static_cast<int32_t>(sizes.logits_rows);
  batch_.block_size = geometry.block_size;
  call_ = {.inputs = inputs_, .outputs = outputs_, .attributes = &op.attributes, .batch = &batch_};
}

std::string OperandViews::ToString() const {
  std::string text;
  for (const TensorView& view : inputs_) text += ViewText(view) + " ";
  text += "->";
  for (const TensorView& view : outputs_) text += " " + ViewText(view);
  return text;
}

}  // namespace pagemill::program
