#include "cc/ops/adjust_logits/adjust_logits.h"

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/sample/row_adjustments.h"

namespace pagemill::ops {
namespace {

Status CheckAdjustLogits(const OpCall& call) {
  OperandCheck check("adjust_logits", call, /*inputs=*/5, /*outputs=*/0);
  check.Input(0, "x", DType::kF32, "L,V");
  check.Input(1, "counts", DType::kI32, "S,V");
  check.Input(2, "biases", DType::kI32, "N,B");
  check.Input(3, "penalties", DType::kI32, "P,W");
  check.Input(4, "ids", DType::kI32, "T");
  check.Require(check.Dim('B') == kLogitBiasWords, "biases must have 3 words a row");
  check.Require(check.Dim('W') == kRowPenaltiesWords, "penalties must have 7 words a row");
  return check.Result();
}

constexpr Kernel kKernels[] = {
    {"adjust_logits", "reference", 0, InEveryType, adjust_logits::RunReference},
};

constexpr OpDefinition kDefinition{"adjust_logits", CheckAdjustLogits, kKernels};

}  // namespace

const OpDefinition& AdjustLogitsOp() { return kDefinition; }

}  // namespace pagemill::ops
