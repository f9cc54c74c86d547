#include "cc/ops/argmax/argmax.h"

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/row_maxima.h"

namespace pagemill::ops {
namespace {

Status CheckArgmax(const OpCall& call) {
  OperandCheck check("argmax", call, /*inputs=*/1, /*outputs=*/2);
  check.Input(0, "x", DType::kF32, "L,V");
  check.Output(0, "columns", DType::kI32, "L");
  check.Output(1, "values", DType::kF32, "L");
  return check.Result();
}

constexpr Kernel kKernels[] = {
    {"argmax", "portable", 10, InEveryType, argmax::RunPortable},
    {"argmax", "reference", 0, InEveryType, argmax::RunReference},
};

constexpr OpDefinition kDefinition{"argmax", CheckArgmax, kKernels};

}  // namespace

const OpDefinition& ArgmaxOp() { return kDefinition; }

namespace argmax {

void RunPortable(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  context.pool->ParallelFor(x.shape[0], /*grain=*/1, [&](int64_t begin, int64_t end, int) {
    for (int64_t l = begin; l < end; ++l) {
      RowMaximum maximum;
      Observe(x.Row<const float>(l), x.shape[1], 0, &maximum);
      *call.outputs[0].Row<int32_t>(l) = maximum.column;
      *call.outputs[1].Row<float>(l) = maximum.logit;
    }
  });
}

}  // namespace argmax

}  // namespace pagemill::ops
