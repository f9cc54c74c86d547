#include "cc/ops/scatter_rows/scatter_rows.h"

#include <cstring>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {
namespace {

// Rows that one thread takes at a time: about 30 KB in a small model, 1 to 2 us.
constexpr int64_t kGrainRows = 16;

Status CheckScatterRows(const OpCall& call) {
  OperandCheck check("scatter_rows", call, /*inputs=*/3, /*outputs=*/1);
  check.ActInput(0, "x", "T,H*");
  check.ActInput(1, "y", "M,H*");
  check.Input(2, "rows", DType::kI32, "M");
  check.ActOutput(0, "z", "T,H*");
  return check.Result();
}

constexpr Kernel kKernels[] = {
    {"scatter_rows", "portable", 10, InEveryType, scatter_rows::RunPortable},
    {"scatter_rows", "reference", 0, InEveryType, scatter_rows::RunReference},
};

constexpr AliasRule kAliases[] = {{.input = 0, .output = 0}};

constexpr OpDefinition kDefinition{"scatter_rows", CheckScatterRows, kKernels, kAliases};

}  // namespace

const OpDefinition& ScatterRowsOp() { return kDefinition; }

namespace scatter_rows {

void RunPortable(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& y = call.inputs[1];
  const TensorView& z = call.outputs[0];
  const int32_t* rows = call.inputs[2].Data<const int32_t>();
  const size_t bytes = static_cast<size_t>(RowBytes(x.dtype, x.RowElements()));
  if (z.data != x.data) {
    context.pool->ParallelFor(x.shape[0], kGrainRows, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        std::memcpy(z.Row<uint8_t>(t), x.Row<const uint8_t>(t), bytes);
      }
    });
  }
  context.pool->ParallelFor(y.shape[0], kGrainRows, [&](int64_t begin, int64_t end, int) {
    for (int64_t m = begin; m < end; ++m) {
      std::memcpy(z.Row<uint8_t>(rows[m]), y.Row<const uint8_t>(m), bytes);
    }
  });
}

}  // namespace scatter_rows

}  // namespace pagemill::ops
