#include "cc/program/program.h"

#include <algorithm>
#include <utility>

#include "cc/ops/operand_check.h"

namespace pagemill::program {
namespace {

constexpr std::pair<CacheLayout, std::string_view> kCacheLayouts[] = {
    {CacheLayout::kKv, "kv"}, {CacheLayout::kLatent, "latent"}, {CacheLayout::kState, "state"}};

}  // namespace

std::string_view NameOf(CacheLayout layout) {
  return kCacheLayouts[static_cast<size_t>(layout)].second;
}

std::optional<CacheLayout> ParseCacheLayout(std::string_view name) {
  for (const auto& [layout, known] : kCacheLayouts) {
    if (known == name) return layout;
  }
  return std::nullopt;
}

int64_t Shape::RowElements() const {
  int64_t n = 1;
  for (int32_t i = 1; i < rank; ++i) n *= dims[static_cast<size_t>(i)];
  return n;
}

int64_t Shape::Rows(const StepSizes& sizes) const {
  return dim == Dim::kNone ? dims[0] : sizes.*ops::InfoOf(dim).bound;
}

std::string Shape::ToString() const {
  std::string text;
  for (int32_t i = 0; i < rank; ++i) {
    if (i > 0) text += ',';
    if (i == 0 && dim != Dim::kNone) {
      text += ops::InfoOf(dim).name;
    } else {
      text += std::to_string(dims[static_cast<size_t>(i)]);
    }
  }
  return text;
}

int64_t Value::Bytes(const StepSizes& sizes) const {
  return shape.Rows(sizes) * RowBytes(dtype, shape.RowElements());
}

int64_t Value::RowStrideBytes() const {
  const bool in_file = weight.row_stride > 0 && weight.column_stride == 0;
  return in_file ? weight.row_stride : RowBytes(dtype, shape.RowElements());
}

int64_t Value::SpanBytes() const {
  const int64_t columns = shape.RowElements(), rows = shape.dims[0];
  if (weight.column_stride > 0) {
    return (rows - 1) * weight.row_stride + (columns - 1) * weight.column_stride +
           RowBytes(dtype, 1);
  }
  return (rows - 1) * RowStrideBytes() + RowBytes(dtype, columns);
}

bool Value::operator==(const Value& other) const {
  return name == other.name && kind == other.kind && dtype == other.dtype &&
         is_act == other.is_act && shape == other.shape && weight == other.weight &&
         cache == other.cache && quantized == other.quantized && stack == other.stack;
}

bool Op::operator==(const Op& other) const {
  return name == other.name && inputs == other.inputs && outputs == other.outputs &&
         attributes.values() == other.attributes.values();
}

std::string LinePrefix(int32_t line) {
  return line > 0 ? "program line " + std::to_string(line) + ": " : "program: ";
}

std::optional<ValueId> Program::Find(std::string_view name) const {
  for (size_t i = 0; i < values_.size(); ++i) {
    if (values_[i].name == name) return ValueId(static_cast<int32_t>(i));
  }
  return std::nullopt;
}

std::optional<ValueId> Program::FindOutput(std::string_view name) const {
  for (const Output& output : outputs_) {
    if (output.name == name) return output.value;
  }
  return std::nullopt;
}

std::vector<ValueId> Program::TensorInputs() const {
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < values_.size(); ++i) {
    if (values_[i].kind != ValueKind::kInput) continue;
    const bool is_array =
        std::any_of(std::begin(ops::kStepArrays), std::end(ops::kStepArrays),
                    [&](const auto& info) { return info.name == values_[i].name; });
    if (!is_array) inputs.push_back(ValueId(static_cast<int32_t>(i)));
  }
  return inputs;
}

bool Program::IsOutput(ValueId id) const {
  return std::any_of(outputs_.begin(), outputs_.end(),
                     [id](const Output& output) { return output.value == id; });
}

Status Program::SetActivationType(DType dtype) {
  if (!ops::IsActType(dtype)) {
    return InvalidArgument("activations must be f32, bf16 or f16, not " +
                           std::string(Info(dtype).name));
  }
  activation_type_ = dtype;
  for (Value& value : values_) {
    if (value.is_act) value.dtype = dtype;
  }
  return OkStatus();
}

Status Program::CheckIntegrity() const {
  std::vector<bool> written(values_.size(), false);
  for (size_t i = 0; i < values_.size(); ++i) {
    const Value& v = values_[i];
    written[i] = v.kind != ValueKind::kActivation;
    if (v.kind == ValueKind::kCache &&
        (v.cache.group < 0 || v.cache.group >= static_cast<int32_t>(groups_.size()))) {
      return InvalidArgument(LinePrefix(v.line) + "cache '" + v.name + "' names no group");
    }
    if (v.quantized) {
      PAGEMILL_RETURN_IF_ERROR(CheckQuantized(v));
    } else if (v.IsMade()) {
      PAGEMILL_RETURN_IF_ERROR(CheckStack(v));
    } else if (v.kind == ValueKind::kWeight &&
               (v.weight.file < 0 || v.weight.file >= static_cast<int32_t>(files_.size()))) {
      return InvalidArgument(LinePrefix(v.line) + "weight '" + v.name + "' names file " +
                             std::to_string(v.weight.file) + ", which is not declared");
    }
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto has_cache = [g](const Value& v) {
      return v.kind == ValueKind::kCache && v.cache.group == static_cast<int32_t>(g);
    };
    if (std::any_of(values_.begin(), values_.end(), has_cache)) continue;
    return InvalidArgument("program: group '" + groups_[g].name + "' has no cache");
  }
  for (const Op& op : ops_) {
    PAGEMILL_RETURN_IF_ERROR(CheckOperands(op, written));
    for (ValueId id : op.outputs) written[static_cast<size_t>(id.value())] = true;
  }
  for (size_t i = 0; i < values_.size(); ++i) {
    if (!written[i]) {
      return InvalidArgument(LinePrefix(values_[i].line) + "no op writes value '" +
                             values_[i].name + "'");
    }
  }
  return CheckOutputs();
}

Status Program::CheckOperands(const Op& op, const std::vector<bool>& written) const {
  const auto in_range = [&](ValueId id) {
    return id.value() >= 0 && static_cast<size_t>(id.value()) < values_.size();
  };
  const std::string prefix = LinePrefix(op.line) + "op '" + op.name + "' ";
  for (ValueId id : op.inputs) {
    if (id == kNoValue) continue;
    if (!in_range(id)) return InvalidArgument(prefix + "reads a value that does not exist");
    if (!written[static_cast<size_t>(id.value())]) {
      return InvalidArgument(prefix + "reads '" + value(id).name + "' before any op writes it");
    }
  }
  for (auto it = op.outputs.begin(); it != op.outputs.end(); ++it) {
    if (!in_range(*it)) return InvalidArgument(prefix + "writes a value that does not exist");
    const Value& v = value(*it);
    if (v.kind != ValueKind::kActivation) {
      return InvalidArgument(prefix + "writes '" + v.name + "', which is not an activation");
    }
    if (written[static_cast<size_t>(it->value())] || std::find(op.outputs.begin(), it, *it) != it) {
      return InvalidArgument(prefix + "writes '" + v.name + "' a second time");
    }
  }
  return OkStatus();
}

Status Program::CheckQuantized(const Value& weight) const {
  for (ValueId id : weight.quantized->parts()) {
    const bool optional = id != weight.quantized->values && id != weight.quantized->scales;
    if (id == kNoValue && optional) continue;
    const bool exists = id.value() >= 0 && static_cast<size_t>(id.value()) < values_.size();
    const bool fits = exists && (value(id).stack.empty() || weight.shape.rank == 3) &&
                      value(id).weight.column_stride == 0;
    if (fits && value(id).kind == ValueKind::kWeight && !value(id).quantized) continue;
    return InvalidArgument(
        LinePrefix(weight.line) + "quantized '" + weight.name +
        "' needs values and scales that are weights, not quantized, not transposed and, "
        "unless it has three dimensions, no stacks; so are zeros, groups and a factor, if it has "
        "them");
  }
  return OkStatus();
}

Status Program::CheckStack(const Value& weight) const {
  const std::string prefix = LinePrefix(weight.line) + "stack '" + weight.name + "' ";
  if (static_cast<int64_t>(weight.stack.size()) != weight.shape.dims[0]) {
    return InvalidArgument(prefix + "of " + weight.shape.ToString() + " has " +
                           std::to_string(weight.stack.size()) + " parts");
  }
  Shape expected = {.rank = weight.shape.rank - 1};
  std::copy(weight.shape.dims.begin() + 1, weight.shape.dims.end(), expected.dims.begin());
  for (ValueId id : weight.stack) {
    const bool exists = id.value() >= 0 && static_cast<size_t>(id.value()) < values_.size();
    if (!exists || value(id).kind != ValueKind::kWeight || value(id).IsMade()) {
      return InvalidArgument(prefix + "needs parts that are weights of a file");
    }
    const Value& part = value(id);
    if (part.dtype == weight.dtype && part.shape == expected && expected.rank > 0) continue;
    return InvalidArgument(prefix + "needs parts of " + std::string(Info(weight.dtype).name) + " " +
                           expected.ToString() + ", but '" + part.name + "' is " +
                           std::string(Info(part.dtype).name) + " " + part.shape.ToString());
  }
  return OkStatus();
}

Status Program::CheckOutputs() const {
  if (outputs_.empty()) return InvalidArgument("program: it has no output");
  for (auto it = outputs_.begin(); it != outputs_.end(); ++it) {
    const Value& v = value(it->value);
    const std::string prefix = LinePrefix(v.line) + "output '" + it->name + "', value '" + v.name;
    if (v.kind != ValueKind::kActivation || v.shape.dim == Dim::kNone) {
      return InvalidArgument(prefix + "', must be a value with rows of the step, got " +
                             v.shape.ToString());
    }
    const bool of_tokens = it->name == kPooled && v.shape.dim == Dim::kTokens;
    const Dim rows = it->name == kLogits                 ? Dim::kLogitsRows
                     : it->name == kPooled && !of_tokens ? Dim::kRequests
                                                         : v.shape.dim;
    const bool is_result = it->name == kLogits || it->name == kPooled;
    const bool is_f32 = v.dtype == DType::kF32 && !v.is_act;
    if (rows != v.shape.dim || (is_result && (!is_f32 || v.shape.rank != 2))) {
      return InvalidArgument(
          prefix + "', must be f32 " + std::string(ops::InfoOf(rows).name) + ",<columns>, got " +
          std::string(v.is_act ? "act" : Info(v.dtype).name) + " " + v.shape.ToString());
    }
    const auto same = [&](const Output& other) {
      return other.name == it->name || other.value == it->value;
    };
    if (std::any_of(outputs_.begin(), it, same)) {
      return InvalidArgument(prefix + "', repeats the name or the value of another output");
    }
  }
  return OkStatus();
}

}  // namespace pagemill::program
