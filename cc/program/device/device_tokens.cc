#include "cc/program/device/device_tokens.h"

#include <algorithm>
#include <optional>
#include <string>

#include "cc/program/operand_views.h"

namespace pagemill::program {
namespace {

const ops::Attributes kNoAttributes;

// Owns the operands of a call.
struct Call {
  ops::OpCall call() const {
    return {.inputs = inputs, .outputs = outputs, .attributes = &kNoAttributes};
  }
  std::vector<TensorView> inputs, outputs;
};

TensorView Vector(const void* data, DType dtype, int64_t size) {
  return TensorView::Dense(const_cast<void*>(data), dtype, {size});
}

Call TakeCall(const int32_t* ids, int64_t num_tokens, const std::byte* sampled, int64_t max_rows) {
  const TensorView tokens = Vector(ids, DType::kI32, num_tokens);
  return {.inputs = {tokens, Vector(sampled, DType::kI32, max_rows)}, .outputs = {tokens}};
}

Call FindCall(TensorView logits, const std::byte* columns, const std::byte* values) {
  const int64_t rows = logits.shape[0];
  return {.inputs = {logits},
          .outputs = {Vector(columns, DType::kI32, rows), Vector(values, DType::kF32, rows)}};
}

Call DrawCall(TensorView logits, const std::byte* columns, const std::byte* values,
              const std::byte* draws) {
  const int64_t rows = logits.shape[0];
  const TensorView sampled = Vector(columns, DType::kI32, rows);
  return {.inputs = {logits, sampled, Vector(values, DType::kF32, rows),
                     TensorView::Dense(const_cast<std::byte*>(draws), DType::kI32,
                                       {rows, ops::kRowDrawWords})},
          .outputs = {sampled}};
}

Call MaskCall(TensorView logits, const std::byte* draws, const std::byte* masks,
              int64_t num_masks) {
  const int64_t words = (logits.shape[1] + 31) / 32;
  return {
      .inputs = {logits,
                 TensorView::Dense(const_cast<std::byte*>(draws), DType::kI32,
                                   {logits.shape[0], ops::kRowDrawWords}),
                 TensorView::Dense(const_cast<std::byte*>(masks), DType::kI32, {num_masks, words})},
      .outputs = {logits}};
}

StatusOr<const ops::Kernel*> Choose(const Target& target, std::string_view name,
                                    const ops::OpCall& call) {
  PAGEMILL_ASSIGN_OR_RETURN(const ops::OpDefinition* definition, ops::FindOp(target.ops, name));
  PAGEMILL_RETURN_IF_ERROR(definition->check(call));
  return ops::ChooseKernel(*definition, target.capabilities, call);
}

int64_t WorkspaceBytes(const ops::Kernel& kernel, const ops::OpCall& call) {
  return kernel.workspace_bytes == nullptr ? 0 : kernel.workspace_bytes(call, /*num_threads=*/1);
}

}  // namespace

std::span<const ops::RowMaximum> FoundTokens::Maxima() {
  maxima_.clear();
  for (size_t i = 0; i < columns_.size(); ++i) {
    maxima_.push_back({.logit = values_[i], .column = columns_[i]});
  }
  return maxima_;
}

StatusOr<DeviceTokens> DeviceTokens::Create(const Program& program, const Target& target,
                                            device::Device& device, const ExecutorOptions& options,
                                            int32_t num_columns) {
  const std::optional<ValueId> logits = program.FindOutput(kLogits);
  if (!logits) return InvalidArgument("token_columns is set, but the program has no logits");
  TensorView view = MakeView(program.value(*logits), options.max_sizes(), nullptr);
  if (num_columns > view.RowElements()) {
    return InvalidArgument("token_columns is " + std::to_string(num_columns) + ", more than the " +
                           std::to_string(view.RowElements()) + " columns of the program's logits");
  }
  DeviceTokens tokens;
  tokens.num_columns_ = num_columns;
  tokens.row_stride_bytes_ = view.row_stride_bytes;
  tokens.max_rows_ = options.max_num_logits_rows;
  view.shape[1] = num_columns;
  const Call take = TakeCall(nullptr, options.max_num_tokens, nullptr, tokens.max_rows_);
  const Call find = FindCall(view, nullptr, nullptr);
  const Call draw = DrawCall(view, nullptr, nullptr, nullptr);
  const Call mask = MaskCall(view, nullptr, nullptr, tokens.max_rows_);
  PAGEMILL_ASSIGN_OR_RETURN(tokens.take_, Choose(target, "take_tokens", take.call()));
  PAGEMILL_ASSIGN_OR_RETURN(tokens.find_, Choose(target, "argmax", find.call()));
  PAGEMILL_ASSIGN_OR_RETURN(tokens.draw_, Choose(target, "draw_tokens", draw.call()));
  PAGEMILL_ASSIGN_OR_RETURN(tokens.mask_, Choose(target, "mask_tokens", mask.call()));
  PAGEMILL_ASSIGN_OR_RETURN(tokens.columns_,
                            device.Allocate(4 * tokens.max_rows_, "sampled tokens"));
  PAGEMILL_ASSIGN_OR_RETURN(tokens.values_, device.Allocate(4 * tokens.max_rows_, "their logits"));
  constexpr auto kDrawBytes = static_cast<int64_t>(sizeof(ops::RowDraw));
  PAGEMILL_ASSIGN_OR_RETURN(tokens.draws_, device.Allocate(kDrawBytes * tokens.max_rows_, "draws"));
  PAGEMILL_ASSIGN_OR_RETURN(
      tokens.masks_,
      device.Allocate(4 * tokens.num_mask_words() * tokens.max_rows_, "token masks"));
  const int64_t workspace_bytes = std::max(
      {WorkspaceBytes(*tokens.take_, take.call()), WorkspaceBytes(*tokens.find_, find.call()),
       WorkspaceBytes(*tokens.draw_, draw.call()), WorkspaceBytes(*tokens.mask_, mask.call())});
  PAGEMILL_ASSIGN_OR_RETURN(tokens.workspace_,
                            device.Allocate(workspace_bytes, "workspace of sampled tokens"));
  return tokens;
}

void DeviceTokens::Run(const ops::Kernel& kernel, const ops::OpCall& call,
                       device::Stream& stream) const {
  ops::KernelContext context = {.workspace = workspace_.bytes(), .stream = &stream};
  kernel.run(call, context);
}

void DeviceTokens::EnqueueTake(const int32_t* ids, int64_t num_tokens,
                               device::Stream& stream) const {
  Run(*take_, TakeCall(ids, num_tokens, columns_.data(), max_rows_).call(), stream);
}

TensorView DeviceTokens::Logits(const std::byte* data, int64_t num_rows) const {
  TensorView view =
      TensorView::Dense(const_cast<std::byte*>(data), DType::kF32, {num_rows, num_columns_});
  view.row_stride_bytes = row_stride_bytes_;
  return view;
}

void DeviceTokens::EnqueueFind(const std::byte* logits, int64_t num_rows,
                               device::Stream& stream) const {
  Run(*find_, FindCall(Logits(logits, num_rows), columns_.data(), values_.data()).call(), stream);
}

void DeviceTokens::EnqueueDraw(std::byte* logits, const StepDraws& draws, FoundTokens* step,
                               device::Stream& stream) const {
  step->draws_.assign(draws.rows.begin(), draws.rows.end());
  stream.CopyToDevice(draws_.data(), std::as_bytes(std::span(step->draws_)));
  const TensorView rows = Logits(logits, static_cast<int64_t>(draws.rows.size()));
  if (!draws.masks.empty()) {
    step->masks_.assign(draws.masks.begin(), draws.masks.end());
    stream.CopyToDevice(masks_.data(), std::as_bytes(std::span(step->masks_)));
    const int64_t num_masks = static_cast<int64_t>(draws.masks.size()) / num_mask_words();
    Run(*mask_, MaskCall(rows, draws_.data(), masks_.data(), num_masks).call(), stream);
    Run(*find_, FindCall(rows, columns_.data(), values_.data()).call(), stream);
  }
  Run(*draw_, DrawCall(rows, columns_.data(), values_.data(), draws_.data()).call(), stream);
}

void DeviceTokens::EnqueueCopy(int64_t num_rows, FoundTokens* to, device::Stream& stream) const {
  to->columns_.resize(static_cast<size_t>(num_rows));
  to->values_.resize(static_cast<size_t>(num_rows));
  stream.CopyToHost(std::as_writable_bytes(std::span(to->columns_)), columns_.data());
  stream.CopyToHost(std::as_writable_bytes(std::span(to->values_)), values_.data());
}

}  // namespace pagemill::program
