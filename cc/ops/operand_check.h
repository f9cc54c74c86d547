// File: cc/ops/operand_check.h
// Checks an OpCall against shape patterns with shared symbols, for the `check` of an op:
//
//   OperandCheck check("layer_norm", call, /*inputs=*/3, /*outputs=*/1);
//   check.ActInput(0, "x", "N,H*");
//   check.Input(1, "w", DType::kF32, "H");
//   check.ActOutput(0, "y", "N,H*");
//   check.Require(check.Dim('H') > 0, "rows are empty");
//   return check.Result();
//
// A pattern lists dimensions, one letter each: the first use of a letter gives it its value, later
// uses must agree. "H*" at the end is the product of all remaining dimensions (for ops that ignore
// the shape of a row); "*" in front skips any leading dimensions.
//
// Operands of type `act`, which stands for f32, bf16 or f16, have one type in a call: the first one
// sets it, later ones must agree. Error bounds in the contracts of ops are for f32; results in bf16
// and f16 are computed as exactly on the given values and then rounded once.
//
// The first failure is kept. It names the op, the operand, the expected and the actual value. Used
// at bind time only; allocates.
#ifndef PAGEMILL_CC_OPS_OPERAND_CHECK_H_
#define PAGEMILL_CC_OPS_OPERAND_CHECK_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cc/base/status.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

// True for the types that `act` may stand for: f32, bf16, f16.
bool IsActType(DType dtype);

class OperandCheck {
 public:
  OperandCheck(std::string_view op, const OpCall& call, size_t inputs, size_t outputs);

  void Input(size_t index, std::string_view name, DType dtype, std::string_view pattern);
  void Output(size_t index, std::string_view name, DType dtype, std::string_view pattern);
  void ActInput(size_t index, std::string_view name, std::string_view pattern);
  void ActOutput(size_t index, std::string_view name, std::string_view pattern);
  // A result that a program may want unrounded: logits, scores.
  void ActOrF32Output(size_t index, std::string_view name, std::string_view pattern);
  // Requires the attribute to be a whole number in [low, high].
  void IntegerAttribute(std::string_view name, double fallback, int64_t low, int64_t high);
  // `what` completes the sentence "<op>: <what>".
  void Require(bool condition, const std::string& what);

  bool ok() const { return status_.ok(); }
  int64_t Dim(char symbol) const;  // 0 if no pattern has set it
  Status Result() const { return status_; }

 private:
  void Operand(const TensorView& view, std::string_view name, DType dtype,
               std::string_view pattern);
  void ActOperand(const TensorView& view, std::string_view name, std::string_view pattern);
  void Mismatch(const TensorView& view, std::string_view name, std::string_view types,
                std::string_view pattern);
  bool Matches(const TensorView& view, std::string_view pattern);
  bool Bind(char symbol, int64_t value);
  std::string Explain(std::string_view pattern) const;

  std::string op_;
  const OpCall& call_;
  Status status_;
  std::optional<DType> act_;       // empty until an operand has set it
  std::array<int64_t, 128> dims_;  // by letter; -1 if unknown
};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_OPERAND_CHECK_H_
