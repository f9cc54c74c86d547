#include "cc/ops/select_rows/select_rows.h"

#include <cstring>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {
namespace {

// Rows that one thread takes at a time: some 30 KB of a small model, a microsecond or two.
constexpr int64_t kGrainRows = 16;

Status CheckSelectRows(const OpCall& call) {
  OperandCheck check("select_rows", call, /*inputs=*/2, /*outputs=*/1);
  check.ActInput(0, "x", "T,H*");
  check.Input(1, "rows", DType::kI32, "L");
  check.ActOutput(0, "y", "L,H*");
  return check.Result();
}

constexpr Kernel kKernels[] = {
    {"select_rows", "portable", 10, InEveryType, select_rows::RunPortable},
    {"select_rows", "reference", 0, InEveryType, select_rows::RunReference},
};

constexpr OpDefinition kDefinition{"select_rows", CheckSelectRows, kKernels};

}  // namespace

const OpDefinition& SelectRowsOp() { return kDefinition; }

namespace select_rows {

void RunPortable(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& rows = call.inputs[1];
  const TensorView& y = call.outputs[0];
  const size_t bytes = static_cast<size_t>(RowBytes(x.dtype, x.RowElements()));
  context.pool->ParallelFor(rows.shape[0], kGrainRows, [&](int64_t begin, int64_t end, int) {
    for (int64_t l = begin; l < end; ++l) {
      std::memcpy(y.Row<uint8_t>(l), x.Row<const uint8_t>(rows.Data<const int32_t>()[l]), bytes);
    }
  });
}

}  // namespace select_rows

}  // namespace pagemill::ops
