#include "cc/program/op_profile.h"

#include <algorithm>

#include "cc/tensor/dtype.h"
#include "cc/tensor/quantized.h"

namespace pagemill::program {
namespace {

// True if the input is a table of which the op reads some rows.
bool IsTable(const ops::OpTraits& traits, size_t input) {
  return traits.table.table >= 0 && input == static_cast<size_t>(traits.table.table);
}

// True if the input is a matrix that the op multiplies by, or a stack of them.
bool IsMatrix(const ops::OpTraits& traits, size_t input) {
  const auto first = static_cast<size_t>(traits.matrices.first);
  return traits.matrices.first >= 0 && input >= first &&
         (input - first) % static_cast<size_t>(traits.matrices.stride) == 0;
}

// Operations per row of the output. With a stack, a row has one product for each choice.
double OperationsPerRow(const Program& program, const Op& op, const Value& matrix) {
  double elements = 1;
  for (int32_t i = matrix.shape.rank - 2; i < matrix.shape.rank; ++i) {
    elements *= static_cast<double>(matrix.shape.dims[static_cast<size_t>(i)]);
  }
  if (matrix.shape.rank == 2) return 2 * elements;
  return 2 * elements * static_cast<double>(program.value(op.outputs[0]).shape.dims[1]);
}

// Bytes read: with a stack, those of at most as many matrices as `ids` has elements.
double BytesOf(const TensorView& view, const TensorView* ids = nullptr) {
  if (view.rank == 0) return 0;
  const int64_t rows = ids == nullptr ? view.shape[0] : std::min(view.shape[0], ids->Elements());
  const double own = static_cast<double>(rows * RowBytes(view.dtype, view.RowElements()));
  if (view.parts == nullptr) return own;
  // Scales are read in addition.
  const TensorView& scales = view.parts->scales;
  const int64_t bytes = scales.shape[0] * RowBytes(scales.dtype, scales.RowElements());
  return own + static_cast<double>(view.rank < 3 ? bytes : bytes / view.shape[0] * rows);
}

}  // namespace

void OpProfile::Start(const Program& program, const KernelSelection& kernels) {
  entries_.clear();
  layers_.clear();
  for (size_t i = 0; i < program.ops().size(); ++i) {
    const Op& op = program.ops()[i];
    Entry& entry = entries_.emplace_back();
    const ops::OpTraits& traits = kernels.definitions[i]->traits;
    entry.time.op = op.name;
    entry.choices = traits.matrices.choices;
    entry.time.kernel = std::string(kernels.kernels[i]->name);
    for (size_t input = 0; input < op.inputs.size(); ++input) {
      const ValueId id = op.inputs[input];
      if (id == kNoValue) {
        entry.counts.push_back(false);
        continue;
      }
      const Value& value = program.value(id);
      entry.counts.push_back(value.kind != ValueKind::kCache &&
                             value.kind != ValueKind::kAdapter && !IsTable(traits, input));
      if (!IsMatrix(traits, input)) continue;
      if (!entry.time.matrix.empty()) entry.time.matrix += " ";
      entry.time.matrix += std::string(Info(value.dtype).name) + "[" + value.shape.ToString() + "]";
      entry.operations_per_row += OperationsPerRow(program, op, value);
    }
    entry.counts.resize(op.inputs.size() + op.outputs.size(), true);
    entry.layer = layers_.size();
    for (ValueId output : op.outputs) {
      const std::string& name = program.value(output).name;
      if (name.starts_with("layer.")) layers_.push_back(name);
    }
  }
  layers_.push_back("end");
}

void OpProfile::Add(StepKind kind, size_t index, const ops::OpCall& call, const CallTime& time) {
  Entry& entry = entries_[index];
  OpTime& sum = entry.sum[static_cast<size_t>(kind)];
  ++sum.calls;
  sum.seconds += time.seconds;
  sum.waited_s += time.waited_s;
  for (size_t i = 0; i < entry.counts.size(); ++i) {
    const bool is_input = i < call.inputs.size();
    if (!entry.counts[i]) continue;
    const TensorView& view = is_input ? call.inputs[i] : call.outputs[i - call.inputs.size()];
    const bool is_stack = entry.choices >= 0 && is_input && static_cast<int>(i) > entry.choices;
    sum.bytes +=
        BytesOf(view, is_stack ? &call.inputs[static_cast<size_t>(entry.choices)] : nullptr);
  }
  if (call.outputs.empty()) return;
  sum.operations += entry.operations_per_row * static_cast<double>(call.outputs[0].shape[0]);
}

std::vector<OpTime> OpProfile::Times(StepKind kind) const {
  std::vector<OpTime> merged;
  for (const Entry& entry : entries_) {
    const OpTime& sum = entry.sum[static_cast<size_t>(kind)];
    if (sum.calls == 0) continue;
    auto same = std::find_if(merged.begin(), merged.end(), [&](const OpTime& m) {
      return m.op == entry.time.op && m.kernel == entry.time.kernel &&
             m.matrix == entry.time.matrix;
    });
    if (same == merged.end()) same = merged.insert(same, entry.time);
    same->calls += sum.calls;
    same->seconds += sum.seconds;
    same->waited_s += sum.waited_s;
    same->bytes += sum.bytes;
    same->operations += sum.operations;
  }
  std::stable_sort(merged.begin(), merged.end(),
                   [](const OpTime& a, const OpTime& b) { return a.seconds > b.seconds; });
  return merged;
}

std::vector<LayerTime> OpProfile::Layers(StepKind kind) const {
  std::vector<LayerTime> times;
  for (const std::string& layer : layers_) times.push_back({.layer = layer});
  int64_t calls = 0;
  for (const Entry& entry : entries_) {
    const OpTime& sum = entry.sum[static_cast<size_t>(kind)];
    calls += sum.calls;
    times[entry.layer].seconds += sum.seconds;
  }
  if (calls == 0) times.clear();
  return times;
}

}  // namespace pagemill::program
