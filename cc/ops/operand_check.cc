#include "cc/ops/operand_check.h"

#include <cmath>

namespace pagemill::ops {
namespace {

std::string ShapeText(const TensorView& view) {
  std::string text(Info(view.dtype).name);
  text += " [";
  for (int i = 0; i < view.rank; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(view.shape[i]);
  }
  return text + "]";
}

}  // namespace

bool IsActType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

OperandCheck::OperandCheck(std::string_view op, const OpCall& call, size_t inputs, size_t outputs)
    : op_(op), call_(call) {
  dims_.fill(-1);
  Require(call.inputs.size() == inputs && call.outputs.size() == outputs,
          "takes " + std::to_string(inputs) + " inputs and gives " + std::to_string(outputs) +
              " outputs, got " + std::to_string(call.inputs.size()) + " and " +
              std::to_string(call.outputs.size()));
  Require(call.attributes != nullptr, "the call has no attributes");
}

void OperandCheck::Input(size_t index, std::string_view name, DType dtype,
                         std::string_view pattern) {
  if (ok()) Operand(call_.inputs[index], name, dtype, pattern);
}

void OperandCheck::Output(size_t index, std::string_view name, DType dtype,
                          std::string_view pattern) {
  if (ok()) Operand(call_.outputs[index], name, dtype, pattern);
}

void OperandCheck::ActInput(size_t index, std::string_view name, std::string_view pattern) {
  if (ok()) ActOperand(call_.inputs[index], name, pattern);
}

void OperandCheck::ActOutput(size_t index, std::string_view name, std::string_view pattern) {
  if (ok()) ActOperand(call_.outputs[index], name, pattern);
}

void OperandCheck::ActOrF32Output(size_t index, std::string_view name, std::string_view pattern) {
  if (!ok()) return;
  if (call_.outputs[index].dtype == DType::kF32) return Output(index, name, DType::kF32, pattern);
  ActOutput(index, name, pattern);
}

void OperandCheck::IntegerAttribute(std::string_view name, double fallback, int64_t low,
                                    int64_t high) {
  if (!ok()) return;
  const double value = call_.attributes->Get(name, fallback);
  Require(value == std::floor(value) && value >= static_cast<double>(low) &&
              value <= static_cast<double>(high),
          "attribute " + std::string(name) + " must be a whole number from " + std::to_string(low) +
              " to " + std::to_string(high) + ", got " + std::to_string(value));
}

void OperandCheck::Require(bool condition, const std::string& what) {
  if (ok() && !condition) status_ = InvalidArgument(op_ + ": " + what);
}

int64_t OperandCheck::Dim(char symbol) const {
  const int64_t value = dims_[static_cast<size_t>(symbol)];
  return value < 0 ? 0 : value;
}

void OperandCheck::Operand(const TensorView& view, std::string_view name, DType dtype,
                           std::string_view pattern) {
  if (view.dtype != dtype || !Matches(view, pattern)) {
    Mismatch(view, name, Info(dtype).name, pattern);
  }
}

void OperandCheck::ActOperand(const TensorView& view, std::string_view name,
                              std::string_view pattern) {
  if (!act_ && IsActType(view.dtype)) act_ = view.dtype;
  if (act_) return Operand(view, name, *act_, pattern);
  Mismatch(view, name, "f32, bf16 or f16", pattern);
}

void OperandCheck::Mismatch(const TensorView& view, std::string_view name, std::string_view types,
                            std::string_view pattern) {
  Require(false, std::string(name) + " must be " + std::string(types) + " " + Explain(pattern) +
                     ", got " + ShapeText(view));
}

bool OperandCheck::Matches(const TensorView& view, std::string_view pattern) {
  if (view.rank < 1) return false;
  if (pattern.front() == '*') return Bind(pattern.back(), view.shape[view.rank - 1]);
  int dim = 0;
  for (size_t i = 0; i < pattern.size(); i += 2) {
    const bool rest = i + 1 < pattern.size() && pattern[i + 1] == '*';
    if (dim >= view.rank) return false;
    int64_t value = view.shape[dim++];
    while (rest && dim < view.rank) value *= view.shape[dim++];
    if (!Bind(pattern[i], value)) return false;
  }
  return dim == view.rank;
}

bool OperandCheck::Bind(char symbol, int64_t value) {
  int64_t& known = dims_[static_cast<size_t>(symbol)];
  if (known < 0) known = value;
  return known == value;
}

// "[N, H* = 576]": the pattern with the values known so far.
std::string OperandCheck::Explain(std::string_view pattern) const {
  std::string text = "[";
  for (char c : pattern) {
    const bool letter = c != ',' && c != '*';
    text += c == ',' ? std::string(", ") : std::string(1, c);
    if (letter && dims_[static_cast<size_t>(c)] >= 0) {
      text += '=';
      text += std::to_string(dims_[static_cast<size_t>(c)]);
    }
  }
  return text + "]";
}

}  // namespace pagemill::ops
