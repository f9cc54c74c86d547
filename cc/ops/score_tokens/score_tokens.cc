#include "cc/ops/score_tokens/score_tokens.h"

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/sample/token_scores.h"

namespace pagemill::ops {
namespace {

Status CheckScoreTokens(const OpCall& call) {
  OperandCheck check("score_tokens", call, /*inputs=*/4, /*outputs=*/1);
  check.Input(0, "x", DType::kF32, "L,V");
  check.Input(1, "copies", DType::kF32, "C,V");
  check.Input(2, "columns", DType::kI32, "L");
  check.Input(3, "scored", DType::kI32, "N,S");
  check.Output(0, "y", DType::kI32, "N,Y");
  check.Require(check.Dim('S') == kScoredRowWords, "scored must have 4 words a row");
  check.Require(check.Dim('Y') == kTokenScoresWords, "y must have 42 words a row");
  return check.Result();
}

constexpr Kernel kKernels[] = {
    {"score_tokens", "reference", 0, InEveryType, score_tokens::RunReference},
};

constexpr OpDefinition kDefinition{"score_tokens", CheckScoreTokens, kKernels};

}  // namespace

const OpDefinition& ScoreTokensOp() { return kDefinition; }

}  // namespace pagemill::ops
