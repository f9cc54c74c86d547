#include "cc/program/device/tokens/device_tokens.h"

#include <algorithm>
#include <string>

#include "cc/program/device/tokens/op_calls.h"
#include "cc/program/operand_views.h"

namespace pagemill::program {
namespace {

TensorView Values(const void* data, int64_t size) {
  return TensorView::Dense(const_cast<void*>(data), DType::kF32, {size});
}

OwnedCall TakeCall(const int32_t* ids, int64_t num_tokens, const std::byte* sampled,
                   int64_t max_rows) {
  const TensorView tokens = Numbers(ids, num_tokens);
  return {.inputs = {tokens, Numbers(sampled, max_rows)}, .outputs = {tokens}};
}

OwnedCall FindCall(TensorView logits, const std::byte* columns, const std::byte* values) {
  const int64_t rows = logits.shape[0];
  return {.inputs = {logits}, .outputs = {Numbers(columns, rows), Values(values, rows)}};
}

OwnedCall DrawCall(TensorView logits, const std::byte* columns, const std::byte* values,
                   const std::byte* draws) {
  const int64_t rows = logits.shape[0];
  const TensorView sampled = Numbers(columns, rows);
  return {.inputs = {logits, sampled, Values(values, rows),
                     Words(draws, rows, ops::kRowDrawWords)},
          .outputs = {sampled}};
}

OwnedCall MaskCall(TensorView logits, const std::byte* draws, const std::byte* masks,
                   int64_t num_masks) {
  const int64_t words = (logits.shape[1] + 31) / 32;
  return {.inputs = {logits, Words(draws, logits.shape[0], ops::kRowDrawWords),
                     Words(masks, num_masks, words)},
          .outputs = {logits}};
}

}  // namespace

std::span<const ops::RowMaximum> FoundTokens::Maxima() {
  maxima_.clear();
  for (size_t i = 0; i < num_rows_; ++i) {
    maxima_.push_back({.logit = values_[i], .column = columns_[i]});
  }
  return maxima_;
}

int64_t TokenPlan::value_offset() const {
  return AlignedTo64(4 * max_rows);
}

int64_t TokenPlan::draw_bytes() const {
  return static_cast<int64_t>(sizeof(ops::RowDraw)) * max_rows;
}

StatusOr<TokenPlan> PlanTokens(const Program& program, const Target& target,
                               const ExecutorOptions& options, int32_t num_columns,
                               int32_t num_slots) {
  const std::optional<ValueId> logits = program.FindOutput(kLogits);
  if (!logits) return InvalidArgument("token_columns is set, but the program has no logits");
  TensorView view = MakeView(program.value(*logits), options.max_sizes(), nullptr);
  if (num_columns > view.RowElements()) {
    return InvalidArgument("token_columns is " + std::to_string(num_columns) + ", more than the " +
                           std::to_string(view.RowElements()) + " columns of the program's logits");
  }
  TokenPlan plan = {.num_columns = num_columns,
                    .row_stride_bytes = view.row_stride_bytes,
                    .max_rows = options.max_num_logits_rows};
  view.shape[1] = num_columns;
  const OwnedCall take = TakeCall(nullptr, options.max_num_tokens, nullptr, plan.max_rows);
  const OwnedCall find = FindCall(view, nullptr, nullptr);
  const OwnedCall draw = DrawCall(view, nullptr, nullptr, nullptr);
  const OwnedCall mask = MaskCall(view, nullptr, nullptr, plan.max_rows);
  PAGEMILL_ASSIGN_OR_RETURN(plan.take, ChooseFor(target, "take_tokens", take));
  PAGEMILL_ASSIGN_OR_RETURN(plan.find, ChooseFor(target, "argmax", find));
  PAGEMILL_ASSIGN_OR_RETURN(plan.draw, ChooseFor(target, "draw_tokens", draw));
  PAGEMILL_ASSIGN_OR_RETURN(plan.mask, ChooseFor(target, "mask_tokens", mask));
  PAGEMILL_ASSIGN_OR_RETURN(plan.adjuster,
                            PlanAdjuster(target, view, options.max_num_tokens, num_slots));
  PAGEMILL_ASSIGN_OR_RETURN(plan.scorer, PlanScorer(target, view, num_slots));
  plan.workspace_bytes =
      std::max({WorkspaceBytes(*plan.take, take), WorkspaceBytes(*plan.find, find),
                WorkspaceBytes(*plan.draw, draw), WorkspaceBytes(*plan.mask, mask)});
  return plan;
}

StatusOr<DeviceTokens> DeviceTokens::Create(const TokenPlan& plan, device::Device& device) {
  DeviceTokens tokens;
  tokens.plan_ = plan;
  PAGEMILL_ASSIGN_OR_RETURN(tokens.found_, device.Allocate(plan.found_bytes(), "found tokens"));
  PAGEMILL_ASSIGN_OR_RETURN(tokens.draws_, device.Allocate(plan.draw_bytes(), "draws"));
  PAGEMILL_ASSIGN_OR_RETURN(tokens.masks_, device.Allocate(plan.mask_bytes(), "token masks"));
  PAGEMILL_ASSIGN_OR_RETURN(
      tokens.workspace_, device.Allocate(plan.workspace_bytes, "workspace of sampled tokens"));
  PAGEMILL_ASSIGN_OR_RETURN(tokens.adjuster_, LogitAdjuster::Create(plan.adjuster, device));
  PAGEMILL_ASSIGN_OR_RETURN(tokens.scorer_, TokenScorer::Create(plan.scorer, device));
  return tokens;
}

StatusOr<FoundTokens> DeviceTokens::NewFound(device::Device& device) const {
  FoundTokens found;
  PAGEMILL_ASSIGN_OR_RETURN(found.memory_,
                            device.AllocateHost(plan_.host_bytes(), "the tokens of a step"));
  PAGEMILL_ASSIGN_OR_RETURN(found.adjustments_, adjuster_->NewBuffer(device));
  PAGEMILL_ASSIGN_OR_RETURN(found.scores_, scorer_->NewBuffer(device));
  const auto rows = static_cast<size_t>(plan_.max_rows);
  std::byte* const columns = found.memory_.data();
  std::byte* const draws = columns + plan_.found_bytes();
  std::byte* const masks = draws + plan_.draw_bytes();
  found.columns_ = {reinterpret_cast<int32_t*>(columns), rows};
  found.values_ = {reinterpret_cast<float*>(columns + plan_.value_offset()), rows};
  found.draws_ = {reinterpret_cast<ops::RowDraw*>(draws), rows};
  found.masks_ = {reinterpret_cast<uint32_t*>(masks),
                  rows * static_cast<size_t>(plan_.num_mask_words())};
  return found;
}

void DeviceTokens::Run(const ops::Kernel& kernel, const ops::OpCall& call,
                       device::Stream& stream) const {
  ops::KernelContext context = {.workspace = workspace_.bytes(), .stream = &stream};
  kernel.run(call, context);
}

void DeviceTokens::EnqueueTake(const int32_t* ids, int64_t num_tokens,
                               device::Stream& stream) const {
  Run(*plan_.take, TakeCall(ids, num_tokens, columns(), plan_.max_rows).call(), stream);
}

TensorView DeviceTokens::Logits(const std::byte* data, int64_t num_rows) const {
  TensorView view =
      TensorView::Dense(const_cast<std::byte*>(data), DType::kF32, {num_rows, plan_.num_columns});
  view.row_stride_bytes = plan_.row_stride_bytes;
  return view;
}

void DeviceTokens::EnqueueFind(const std::byte* logits, int64_t num_rows,
                               device::Stream& stream) const {
  Run(*plan_.find, FindCall(Logits(logits, num_rows), columns(), values()).call(), stream);
}

Status DeviceTokens::CheckDraws(const StepDraws& draws, int64_t num_rows, int64_t num_ids) const {
  if (static_cast<int64_t>(draws.rows.size()) != num_rows) {
    return InvalidArgument("a step of " + std::to_string(num_rows) + " rows of logits has " +
                           std::to_string(draws.rows.size()) + " draws");
  }
  const int64_t num_masks = static_cast<int64_t>(draws.masks.size()) / num_mask_words();
  const auto known = [&](const ops::RowDraw& row) { return row.mask < num_masks; };
  if (num_masks > num_rows || !std::ranges::all_of(draws.rows, known)) {
    return InvalidArgument("the draws of a step do not fit its " + std::to_string(num_masks) +
                           " token masks");
  }
  PAGEMILL_RETURN_IF_ERROR(adjuster_->Check(draws, num_rows, num_ids));
  return scorer_->Check(draws, num_rows);
}

void DeviceTokens::EnqueueDraw(std::byte* logits, std::span<const int32_t> ids,
                               const StepDraws& draws, FoundTokens* step,
                               device::Stream& stream) const {
  std::ranges::copy(draws.rows, step->draws_.begin());
  stream.CopyToDevice(draws_.data(), std::as_bytes(step->draws_.first(draws.rows.size())));
  const TensorView rows = Logits(logits, static_cast<int64_t>(draws.rows.size()));
  scorer_->EnqueueCopies(rows, draws, &step->scores_, stream);
  if (!draws.masks.empty()) {
    const int64_t num_masks = static_cast<int64_t>(draws.masks.size()) / num_mask_words();
    const auto words = static_cast<size_t>(num_masks * num_mask_words());
    std::ranges::copy(draws.masks.first(words), step->masks_.begin());
    stream.CopyToDevice(masks_.data(), std::as_bytes(step->masks_.first(words)));
    Run(*plan_.mask, MaskCall(rows, draws_.data(), masks_.data(), num_masks).call(), stream);
  }
  const bool counts = !draws.cleared_slots.empty() || !draws.counts.empty();
  const bool adjusted = !draws.biases.empty() || !draws.penalties.empty();
  if (counts || adjusted) adjuster_->Enqueue(rows, ids, draws, &step->adjustments_, stream);
  if (adjusted || !draws.masks.empty()) {
    Run(*plan_.find, FindCall(rows, columns(), values()).call(), stream);
  }
  Run(*plan_.draw, DrawCall(rows, columns(), values(), draws_.data()).call(), stream);
  scorer_->EnqueueScores(rows, reinterpret_cast<const int32_t*>(columns()), step->scores_, stream);
}

void DeviceTokens::EnqueueCopy(int64_t num_rows, FoundTokens* to, device::Stream& stream) const {
  to->num_rows_ = static_cast<size_t>(num_rows);
  const auto columns = std::as_writable_bytes(to->columns_);
  stream.CopyToHost({columns.data(), static_cast<size_t>(plan_.value_offset() + 4 * num_rows)},
                    found_.data());
  scorer_->EnqueueResults(&to->scores_, stream);
}

}  // namespace pagemill::program
