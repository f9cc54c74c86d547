#include "cc/program/bound/bound_program.h"

#include "cc/program/operand_views.h"

namespace pagemill::program {
namespace {

class Binder {
 public:
  Binder(const Program& program, const KernelSelection& kernels, const ExecutorOptions& options,
         const Addresses& addresses)
      : program_(program), kernels_(kernels), options_(options), addresses_(addresses) {}

  BoundProgram Run(const ActivationPlan& activations) {
    PlaceValues(activations);
    bound_.inputs = program_.TensorInputs();
    bound_.by_input.resize(bound_.inputs.size());
    for (size_t i = 0; i < program_.ops().size(); ++i) BindOp(i);
    bound_.num_tables = kernels_.kv.tables.size();
    bound_.workspace = {addresses_.workspace, static_cast<size_t>(kernels_.workspace_bytes)};
    return std::move(bound_);
  }

 private:
  void PlaceValues(const ActivationPlan& activations) {
    bound_.values.assign(program_.values().size(), nullptr);
    for (size_t i = 0; i < bound_.values.size(); ++i) {
      if (activations.offsets[i] == ActivationPlan::kNotInArena) continue;
      bound_.values[i] = addresses_.activations + activations.offsets[i];
    }
    int64_t offset = 0;
    for (const Output& output : program_.outputs()) {
      bound_.values[static_cast<size_t>(output.value.value())] = addresses_.outputs + offset;
      offset += program_.value(output.value).Bytes(options_.max_sizes());
    }
  }

  void BindOp(size_t index) {
    const Op& op = program_.ops()[index];
    const int32_t plan = kernels_.op_plans[index];
    bound_.ops.push_back({.kernel = kernels_.kernels[index],
                          .attributes = &op.attributes,
                          .first_operand = static_cast<uint32_t>(bound_.operands.size()),
                          .num_inputs = static_cast<uint32_t>(op.inputs.size()),
                          .num_outputs = static_cast<uint32_t>(op.outputs.size()),
                          .table = static_cast<uint32_t>(TableOf(program_, op, kernels_.kv)),
                          .plan = plan < 0 ? nullptr : addresses_.plans + PlanOffset(plan)});
    const int64_t rows_of_each = RowsOfEach(program_, op);
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      BindOperand(op.inputs[k], rows_of_each);
      if (op.inputs[k] == kNoValue) continue;
      if (program_.value(op.inputs[k]).kind != ValueKind::kWeight) continue;
      BindWeight(index, k, program_.value(op.inputs[k]));
    }
    for (ValueId id : op.outputs) BindOperand(id, rows_of_each);
  }

  // The operand that was added last is the weight.
  void BindWeight(size_t op, size_t input, const Value& value) {
    TensorView& view = bound_.operands.back();
    const WeightOperand weight = addresses_.weight(op, input);
    view.data = const_cast<std::byte*>(weight.data);
    if (value.quantized) {
      bound_.parts.push_back(
          std::make_unique<const QuantizedParts>(MakeParts(program_, value, addresses_.part)));
      view.parts = bound_.parts.back().get();
      if (weight.data == nullptr) view.data = view.parts->values.data;
    }
    if (weight.reordered) {
      view = ops::PackedView(*ops::PackingOf(*kernels_.kernels[op], input), view);
    }
  }

  int64_t PlanOffset(int32_t plan) const {
    return kernels_.plans[static_cast<size_t>(plan)].offset;
  }

  void BindOperand(ValueId id, int64_t rows_of_each) {
    const uint32_t operand = static_cast<uint32_t>(bound_.operands.size());
    if (id == kNoValue) {
      bound_.operands.push_back({});
      return;
    }
    const size_t index = static_cast<size_t>(id.value());
    const Value& v = program_.value(id);
    if (v.kind == ValueKind::kCache) {
      bound_.operands.push_back(
          CacheView(v, kernels_.kv.caches[index], kernels_.kv, addresses_.kv));
      return;
    }
    bound_.operands.push_back(
        MakeOperandView(v, options_.max_sizes(), rows_of_each, bound_.values[index]));
    if (v.kind == ValueKind::kAdapter) bound_.operands.back().data = addresses_.adapter(id);
    for (size_t d = 0; d < std::size(ops::kDims); ++d) {
      if (v.shape.dim != ops::kDims[d].dim) continue;
      bound_.by_dim[d].push_back({operand, v.kind == ValueKind::kActivation ? rows_of_each : 1});
    }
    for (size_t a = 0; v.kind == ValueKind::kInput && a < std::size(ops::kStepArrays); ++a) {
      if (v.name == ops::kStepArrays[a].name) bound_.by_array[a].push_back(operand);
    }
    for (size_t i = 0; i < bound_.inputs.size(); ++i) {
      if (bound_.inputs[i] == id) bound_.by_input[i].push_back(operand);
    }
  }

  const Program& program_;
  const KernelSelection& kernels_;
  const ExecutorOptions& options_;
  const Addresses& addresses_;
  BoundProgram bound_;
};

}  // namespace

BoundProgram Bind(const Program& program, const KernelSelection& kernels,
                  const ActivationPlan& activations, const ExecutorOptions& options,
                  const Addresses& addresses) {
  return Binder(program, kernels, options, addresses).Run(activations);
}

}  // namespace pagemill::program
