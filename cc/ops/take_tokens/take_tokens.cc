#include "cc/ops/take_tokens/take_tokens.h"

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {
namespace {

Status CheckTakeTokens(const OpCall& call) {
  OperandCheck check("take_tokens", call, /*inputs=*/2, /*outputs=*/1);
  check.Input(0, "ids", DType::kI32, "T");
  check.Input(1, "sampled", DType::kI32, "L");
  check.Output(0, "y", DType::kI32, "T");
  return check.Result();
}

constexpr Kernel kKernels[] = {
    {"take_tokens", "reference", 0, InEveryType, take_tokens::RunReference},
};
constexpr AliasRule kMayAlias[] = {{.input = 0, .output = 0}};

constexpr OpDefinition kDefinition{"take_tokens", CheckTakeTokens, kKernels, kMayAlias};

}  // namespace

const OpDefinition& TakeTokensOp() { return kDefinition; }

}  // namespace pagemill::ops
