#include "cc/program/program.h"

#include <algorithm>

#include "cc/program/assembly.h"

namespace pagemill::program {

int64_t StepSizes::Of(Symbol symbol) const {
  switch (symbol) {
    case Symbol::kTokens:
      return tokens;
    case Symbol::kRequests:
      return requests;
    case Symbol::kLogitsRows:
      return logits_rows;
    case Symbol::kNone:
      break;
  }
  CheckFailed(__FILE__, __LINE__, "size of a dimension that is not symbolic");
}

int64_t Shape::RowElements() const {
  int64_t n = 1;
  for (int32_t i = 1; i < rank; ++i) n *= dims[static_cast<size_t>(i)];
  return n;
}

int64_t Shape::Rows(const StepSizes& sizes) const {
  return symbol == Symbol::kNone ? dims[0] : sizes.Of(symbol);
}

std::string Shape::ToString() const {
  std::string text;
  for (int32_t i = 0; i < rank; ++i) {
    if (i > 0) text += ',';
    if (i == 0 && symbol != Symbol::kNone) {
      text += symbol == Symbol::kTokens ? 'T' : symbol == Symbol::kRequests ? 'R' : 'L';
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
  return weight.row_stride > 0 ? weight.row_stride : RowBytes(dtype, shape.RowElements());
}

int64_t Value::SpanBytes() const {
  return (shape.dims[0] - 1) * RowStrideBytes() + RowBytes(dtype, shape.RowElements());
}

bool Value::operator==(const Value& other) const {
  return name == other.name && kind == other.kind && dtype == other.dtype && shape == other.shape &&
         weight == other.weight && cache == other.cache && assembly == other.assembly &&
         stack == other.stack;
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

std::optional<ValueId> Program::OutputOf(Symbol symbol) const {
  for (ValueId id : outputs_) {
    if (value(id).shape.symbol == symbol) return id;
  }
  return std::nullopt;
}

Status Program::CheckIntegrity() const {
  std::vector<bool> written(values_.size(), false);
  for (size_t i = 0; i < values_.size(); ++i) {
    const Value& v = values_[i];
    written[i] = v.kind != ValueKind::kActivation;
    if (v.assembly) {
      PM_RETURN_IF_ERROR(CheckAssembly(*this, v));
    } else if (v.IsMade()) {
      PM_RETURN_IF_ERROR(CheckStack(v));
    } else if (v.kind == ValueKind::kWeight &&
               (v.weight.file < 0 || v.weight.file >= static_cast<int32_t>(files_.size()))) {
      return InvalidArgument(LinePrefix(v.line) + "weight '" + v.name + "' names file " +
                             std::to_string(v.weight.file) + ", which is not declared");
    }
  }
  for (const Op& op : ops_) {
    PM_RETURN_IF_ERROR(CheckOperands(op, written));
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
    if (!exists || value(id).kind != ValueKind::kWeight || !value(id).stack.empty()) {
      return InvalidArgument(prefix + "needs parts that are weights, and no stacks");
    }
    const Value& part = value(id);
    if (part.dtype == weight.dtype && part.shape == expected && expected.rank == 2) continue;
    return InvalidArgument(prefix + "needs matrices of " + std::string(Info(weight.dtype).name) +
                           " " + expected.ToString() + ", but '" + part.name + "' is " +
                           std::string(Info(part.dtype).name) + " " + part.shape.ToString());
  }
  return OkStatus();
}

Status Program::CheckOutputs() const {
  if (outputs_.empty()) return InvalidArgument("program: it has no output");
  for (auto it = outputs_.begin(); it != outputs_.end(); ++it) {
    const Value& v = value(*it);
    const std::string prefix = LinePrefix(v.line) + "output '" + v.name + "' ";
    const Symbol symbol = v.shape.symbol;
    if (v.kind != ValueKind::kActivation || v.dtype != DType::kF32 || v.shape.rank != 2 ||
        (symbol != Symbol::kLogitsRows && symbol != Symbol::kRequests)) {
      return InvalidArgument(prefix + "must be an activation f32 L,<vocabulary> (logits) or f32 " +
                             "R,<dimension> (pooled), got " + std::string(Info(v.dtype).name) +
                             " " + v.shape.ToString());
    }
    for (auto other = outputs_.begin(); other != it; ++other) {
      if (value(*other).shape.symbol == symbol) {
        return InvalidArgument(prefix + "is the second output of its kind");
      }
    }
  }
  return OkStatus();
}

}  // namespace pagemill::program
