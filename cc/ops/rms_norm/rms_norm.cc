#include "cc/ops/rms_norm/rms_norm.h"

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/rms_norm/rms_norm_row.h"
#include "cc/ops/row_split.h"

namespace pagemill::ops {
namespace {

Status CheckRmsNorm(const OpCall& call) {
  OperandCheck check("rms_norm", call, /*inputs=*/2, /*outputs=*/1);
  check.ActInput(0, "x", "*,H");
  const bool groups =
      check.ok() && call.inputs[0].rank == 3 && call.inputs[1].shape[0] != check.Dim('H');
  check.Input(1, "w", DType::kF32, groups ? "W" : "H");
  check.ActOutput(0, "y", "N,F*");
  if (!check.ok()) return check.Result();
  check.Require(call.inputs[0].rank >= 2, "x must have two dimensions or more");
  check.Require(call.inputs[0].shape[0] == call.outputs[0].shape[0] &&
                    call.inputs[0].RowElements() == call.outputs[0].RowElements(),
                "y must have as many rows as x, and as many elements a row");
  check.Require(check.Dim('H') > 0, "rows must not be empty");
  check.Require(!groups || check.Dim('W') == call.inputs[0].RowElements(),
                "w must have a weight for each element of a row, or of its last dimension");
  check.Require(call.attributes->Get("eps", 0) > 0, "attribute eps must be above 0");
  return check.Result();
}

template <RmsNormRowFunction kRow>
void Run(const OpCall& call, KernelContext& context) {
  const RmsNormArgs args = ToRmsNormArgs(call);
  const int64_t size = args.size();
  const int64_t rows_per_index = args.x.RowElements() / size;  // a rank-1 x is refused by the check
  const int64_t rows = args.x.shape[0] * rows_per_index;
  context.pool->ParallelFor(rows, RowsPerChunk(size), [&](int64_t begin, int64_t end, int) {
    RmsNormRow row;
    row.size = size;
    row.eps = args.eps;
    row.weight_offset = args.weight_offset;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t offset = i % rows_per_index * size;
      row.w = args.WeightsOf(i % rows_per_index);
      row.x = args.x.Row<float>(i / rows_per_index) + offset;
      row.y = args.y.Row<float>(i / rows_per_index) + offset;
      kRow(row);
    }
  });
}

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"rms_norm", "avx512", 30, OnAvx512, Run<RmsNormRowAvx512>},
    {"rms_norm", "avx2", 20, OnAvx2, Run<RmsNormRowAvx2>},
#endif
    {"rms_norm", "portable", 10, OnEveryCpu, Run<RmsNormRowPortable>},
    WidenedReference<&kRmsNormReference>("rms_norm"),
};

constexpr OpDefinition kDefinition{"rms_norm", CheckRmsNorm, kKernels};

}  // namespace

RmsNormArgs ToRmsNormArgs(const OpCall& call) {
  return {.x = call.inputs[0],
          .w = call.inputs[1],
          .y = call.outputs[0],
          .eps = static_cast<float>(call.attributes->Get("eps", 0)),
          .weight_offset = static_cast<float>(call.attributes->Get("weight_offset", 0))};
}

const OpDefinition& RmsNormOp() { return kDefinition; }

}  // namespace pagemill::ops
