#include "cc/program/bound/step_calls.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "cc/program/operand_views.h"

namespace pagemill::program {

namespace {

Status CheckInputs(const ops::StepBatch& batch, const Program& program,
                   std::span<const ValueId> inputs) {
  if (batch.inputs.size() != inputs.size()) {
    return InvalidArgument("a step with " + std::to_string(batch.inputs.size()) +
                           " inputs for a program that has " + std::to_string(inputs.size()) +
                           " besides the arrays of a step");
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = program.value(inputs[i]);
    const TensorView expected = MakeView(value, ops::SizesOf(batch), nullptr);
    const TensorView& got = batch.inputs[i];
    if (got.dtype == expected.dtype && got.rank == expected.rank && got.shape == expected.shape) {
      continue;
    }
    return InvalidArgument("input '" + value.name + "' must be " + ViewText(expected) + ", got " +
                           ViewText(got));
  }
  return OkStatus();
}

}  // namespace

Status CheckBatch(const ops::StepBatch& batch, const Program& program, const BoundProgram& bound,
                  const ExecutorOptions& options, const KvLayout& layout) {
  const auto check = [](const char* what, int32_t got, int32_t limit, const char* flag) {
    if (got >= 0 && got <= limit) return OkStatus();
    return InvalidArgument("a step of " + std::to_string(got) + " " + what + " exceeds " + flag +
                           " = " + std::to_string(limit));
  };
  PAGEMILL_RETURN_IF_ERROR(
      check("tokens", batch.num_tokens, options.max_num_tokens, "max_num_tokens"));
  PAGEMILL_RETURN_IF_ERROR(
      check("requests", batch.num_requests, options.max_num_seqs, "max_num_seqs"));
  PAGEMILL_RETURN_IF_ERROR(check("rows of logits", batch.num_logits_rows,
                                 options.max_num_logits_rows, "max_num_logits_rows"));
  PAGEMILL_RETURN_IF_ERROR(
      check("media rows", batch.num_media_rows, batch.num_tokens, "its tokens"));
  PAGEMILL_RETURN_IF_ERROR(check("text rows", batch.num_text_rows, batch.num_tokens, "its tokens"));
  const auto text_rows = static_cast<size_t>(ops::Dim::kTextRows) - 1;
  if (!bound.by_dim[text_rows].empty() &&
      batch.num_text_rows != batch.num_tokens - batch.num_media_rows) {
    return InvalidArgument("a step of " + std::to_string(batch.num_tokens) + " tokens with " +
                           std::to_string(batch.num_media_rows) + " media rows and " +
                           std::to_string(batch.num_text_rows) + " text rows");
  }
  if (batch.kv.size() != layout.tables.size()) {
    return InvalidArgument("a step with " + std::to_string(batch.kv.size()) +
                           " block tables on a cache with " + std::to_string(layout.tables.size()));
  }
  for (size_t t = 0; t < batch.kv.size(); ++t) {
    const int32_t block_size = layout.tables[t].block_size;
    const int32_t recent_states = layout.tables[t].recent_states;
    if (batch.kv[t].recent_states != recent_states) {
      return InvalidArgument("a step with " + std::to_string(batch.kv[t].recent_states) +
                             " recent states in block table " + std::to_string(t) +
                             ", which has " + std::to_string(recent_states) +
                             " (max_draft_tokens of the executor)");
    }
    if (batch.kv[t].block_size == block_size) continue;
    return InvalidArgument("a step with blocks of " + std::to_string(batch.kv[t].block_size) +
                           " tokens in block table " + std::to_string(t) + ", whose blocks have " +
                           std::to_string(block_size));
  }
  for (size_t a = 0; a < std::size(ops::kStepArrays); ++a) {
    const auto& info = ops::kStepArrays[a];
    if (info.if_declared && !bound.by_array[a].empty() && batch.*info.data == nullptr) {
      return InvalidArgument("a step without " + std::string(info.name) +
                             ", which the program reads");
    }
  }
  return CheckInputs(batch, program, bound.inputs);
}

StepCalls::StepCalls(const BoundProgram& bound)
    : bound_(bound), views_(bound.operands), batches_(std::max<size_t>(1, bound.num_tables)) {
  for (const BoundOp& op : bound.ops) {
    const std::span<const TensorView> operands =
        std::span(views_).subspan(op.first_operand, op.num_inputs + op.num_outputs);
    calls_.push_back({.inputs = operands.first(op.num_inputs),
                      .outputs = operands.last(op.num_outputs),
                      .attributes = op.attributes,
                      .batch = &batches_[op.table]});
  }
}

void StepCalls::Set(const ops::StepBatch& batch) {
  static_cast<ops::StepArrays&>(batches_[0]) = batch;
  for (size_t t = 0; t < batch.kv.size(); ++t) batches_[t] = batch.View(t);
  for (size_t d = 0; d < std::size(ops::kDims); ++d) {
    const int64_t size = batch.*ops::kDims[d].size;
    for (const SizedOperand& sized : bound_.by_dim[d]) {
      views_[sized.operand].shape[0] = size * sized.rows_of_each;
    }
  }
  for (size_t a = 0; a < std::size(ops::kStepArrays); ++a) {
    int32_t* array = const_cast<int32_t*>(batch.*ops::kStepArrays[a].data);
    for (uint32_t operand : bound_.by_array[a]) views_[operand].data = array;
  }
  for (size_t i = 0; i < batch.inputs.size(); ++i) {
    for (uint32_t operand : bound_.by_input[i]) {
      views_[operand].data = batch.inputs[i].data;
      views_[operand].row_stride_bytes = batch.inputs[i].row_stride_bytes;
    }
  }
}

void MakePlans(const KernelSelection& kernels, const StepCalls& calls, std::span<std::byte> plans) {
  for (const KernelSelection::Plan& plan : kernels.plans) {
    kernels.kernels[plan.op]->plan->make(
        calls[plan.op],
        plans.subspan(static_cast<size_t>(plan.offset), static_cast<size_t>(plan.bytes)));
  }
}

}  // namespace pagemill::program
