#include "cc/program/greedy_tail.h"

#include <algorithm>

#include "cc/ops/all_gather/all_gather.h"
#include "cc/ops/apply_adapter/apply_adapter.h"
#include "cc/ops/collective.h"

namespace pagemill::program {
namespace {

// The index of the op that writes `id`.
size_t WriterOf(const Program& program, ValueId id) {
  for (size_t i = 0;; ++i) {
    const std::vector<ValueId>& outputs = program.ops()[i].outputs;
    if (std::find(outputs.begin(), outputs.end(), id) != outputs.end()) return i;
  }
}

int64_t CountReaders(const Program& program, ValueId id) {
  return std::count_if(program.ops().begin(), program.ops().end(), [id](const Op& op) {
    return std::find(op.inputs.begin(), op.inputs.end(), id) != op.inputs.end();
  });
}

const ops::OpTraits& TraitsOf(std::span<const ops::OpDefinition> ops, const Op& op) {
  static constexpr ops::OpTraits kNone;
  const StatusOr<const ops::OpDefinition*> definition = ops::FindOp(ops, op.name);
  return definition.ok() ? (*definition)->traits : kNone;
}

// True if `op` is one product of each row with one matrix.
bool IsProduct(std::span<const ops::OpDefinition> ops, const Program& program, const Op& op) {
  const ops::MatrixInputs& matrices = TraitsOf(ops, op).matrices;
  return matrices.first >= 0 && op.outputs.size() == 1 &&
         program.value(op.inputs[static_cast<size_t>(matrices.first)]).shape.rank == 2;
}

// True if `op` applies adapters to one value.
bool HasAdapters(const Program& program, const Op& op) {
  return op.outputs.size() == 1 &&
         std::any_of(op.inputs.begin(), op.inputs.end(), [&program](ValueId id) {
           return id != kNoValue && program.value(id).kind == ValueKind::kAdapter;
         });
}

}  // namespace

std::optional<GreedyTail> GreedyTail::Find(const Program& program,
                                           std::span<const ops::OpDefinition> ops,
                                           int64_t max_rows) {
  const std::optional<ValueId> logits = program.FindOutput(kLogits);
  if (!logits || CountReaders(program, *logits) > 0) return std::nullopt;
  GreedyTail tail;
  tail.columns_ = program.value(*logits).shape.RowElements();
  tail.projection_ = WriterOf(program, *logits);
  const Op& last = program.ops()[tail.projection_];
  if (TraitsOf(ops, last).gathers_columns) {
    const int64_t ranks = last.attributes.GetInt("ranks", 1);
    tail.first_column_ = ops::GatherBegin(tail.columns_, last.attributes.GetInt("rank", 0), ranks);
    tail.widths_.assign(static_cast<size_t>(ranks), sizeof(ops::RowMaximum));
    tail.gathered_.resize(static_cast<size_t>(max_rows * ranks));
    tail.gather_ = tail.projection_;
    if (CountReaders(program, last.inputs[0]) > 1) return std::nullopt;
    if (program.value(last.inputs[0]).kind != ValueKind::kActivation) return std::nullopt;
    tail.projection_ = WriterOf(program, last.inputs[0]);
  }
  const Op& changes = program.ops()[tail.projection_];
  if (HasAdapters(program, changes)) {
    const ValueId product = changes.inputs[ops::apply_adapter::ResultOperand(0)];
    if (CountReaders(program, product) > 1) return std::nullopt;
    if (program.value(product).kind != ValueKind::kActivation) return std::nullopt;
    tail.adapt_ = tail.projection_;
    tail.adapter_ = changes.inputs[ops::apply_adapter::TableOperand(0)];
    tail.projection_ = WriterOf(program, product);
  }
  if (!IsProduct(ops, program, program.ops()[tail.projection_])) return std::nullopt;
  tail.maxima_.resize(static_cast<size_t>(max_rows));
  return tail;
}

bool GreedyTail::Serves(const ops::StepArrays& batch, AdapterTables& adapters) const {
  if (batch.argmax_columns <= 0 || batch.argmax_columns > columns_) return false;
  if (adapt_ == kNone) return true;
  const ops::AdapterMatrices* const table = adapters.TableOf(adapter_);
  for (int32_t row = 0; row < batch.num_logits_rows; ++row) {
    const int32_t slot = batch.adapter_slots[batch.logits_rows[row]];
    if (slot >= 0 && !table[slot].empty()) return false;
  }
  return true;
}

void GreedyTail::Run(size_t op, const ops::Kernel& kernel, const ops::OpCall& call,
                     ops::KernelContext& context) {
  if (op == projection_) return RunProjection(kernel, call, context);
  if (op == gather_) RunGather(call, context);
}

void GreedyTail::RunProjection(const ops::Kernel& kernel, const ops::OpCall& call,
                               ops::KernelContext& context) {
  const int64_t own = call.outputs[0].RowElements();
  const int64_t wanted = std::clamp<int64_t>(call.batch->argmax_columns - first_column_, 0, own);
  ops::RunRowMaxima(kernel, call, context, wanted, maxima_.data());
  for (int64_t i = 0; i < call.outputs[0].shape[0]; ++i) {
    ops::RowMaximum& maximum = maxima_[static_cast<size_t>(i)];
    if (maximum.usable()) maximum.column += static_cast<int32_t>(first_column_);
  }
}

void GreedyTail::RunGather(const ops::OpCall& call, ops::KernelContext& context) {
  comm::Group* group = ops::GroupOf(*call.attributes, context);
  if (group == nullptr) return;
  const int64_t rows = call.outputs[0].shape[0];
  // The group keeps the error; a failed group does nothing.
  (void)group->AllGather(maxima_.data(), gathered_.data(), rows, widths_);
  const size_t ranks = widths_.size();
  for (size_t i = 0; i < static_cast<size_t>(rows); ++i) {
    maxima_[i] = {};
    for (size_t r = 0; r < ranks; ++r) ops::Merge(gathered_[i * ranks + r], &maxima_[i]);
  }
}

}  // namespace pagemill::program
