#include "cc/ops/count_tokens/count_tokens.h"

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/sample/row_adjustments.h"

namespace pagemill::ops {
namespace {

Status CheckCountTokens(const OpCall& call) {
  OperandCheck check("count_tokens", call, /*inputs=*/4, /*outputs=*/0);
  check.Input(0, "counts", DType::kI32, "S,V");
  check.Input(1, "cleared", DType::kI32, "C");
  check.Input(2, "changes", DType::kI32, "N,D");
  check.Input(3, "ids", DType::kI32, "T");
  check.Require(check.Dim('D') == kTokenCountWords, "changes must have 3 words a row");
  return check.Result();
}

constexpr Kernel kKernels[] = {
    {"count_tokens", "reference", 0, InEveryType, count_tokens::RunReference},
};

constexpr OpDefinition kDefinition{"count_tokens", CheckCountTokens, kKernels};

}  // namespace

const OpDefinition& CountTokensOp() { return kDefinition; }

}  // namespace pagemill::ops
