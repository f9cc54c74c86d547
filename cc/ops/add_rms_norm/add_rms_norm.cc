#include "cc/ops/add_rms_norm/add_rms_norm.h"

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/rms_norm/rms_norm_row.h"
#include "cc/ops/row_split.h"

namespace pagemill::ops {
namespace {

Status CheckAddRmsNorm(const OpCall& call) {
  OperandCheck check("add_rms_norm", call, /*inputs=*/3, /*outputs=*/2);
  check.Input(2, "w", DType::kF32, "H");
  check.ActInput(0, "x", "N,H*");
  check.ActInput(1, "residual", "N,H*");
  check.ActOutput(0, "y", "N,H*");
  check.ActOutput(1, "sum", "N,H");
  if (!check.ok()) return check.Result();
  check.Require(check.Dim('H') > 0, "rows must not be empty");
  check.Require(call.attributes->Get("eps", 0) > 0, "attribute eps must be above 0");
  return check.Result();
}

template <RmsNormRowFunction kRow>
void Run(const OpCall& call, KernelContext& context) {
  const AddRmsNormArgs args = ToAddRmsNormArgs(call);
  const int64_t size = args.w.shape[0];
  context.pool->ParallelFor(args.x.shape[0], RowsPerChunk(size),
                            [&](int64_t begin, int64_t end, int) {
                              RmsNormRow row;
                              row.w = args.w.Data<float>();
                              row.size = size;
                              row.eps = args.eps;
                              row.weight_offset = args.weight_offset;
                              for (int64_t i = begin; i < end; ++i) {
                                row.x = args.x.Row<float>(i);
                                row.residual = args.residual.Row<float>(i);
                                row.y = args.y.Row<float>(i);
                                row.sum = args.sum.Row<float>(i);
                                kRow(row);
                              }
                            });
}

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"add_rms_norm", "avx512", 30, OnAvx512, Run<RmsNormRowAvx512>},
    {"add_rms_norm", "avx2", 20, OnAvx2, Run<RmsNormRowAvx2>},
#endif
    {"add_rms_norm", "portable", 10, OnEveryCpu, Run<RmsNormRowPortable>},
    {"add_rms_norm", "reference", 0, InEveryType, AddRmsNormReference,
     AddRmsNormReferenceWorkspaceBytes},
};

constexpr AliasRule kAliases[] = {{.input = 0, .output = 0}, {.input = 1, .output = 1}};

constexpr OpDefinition kDefinition{
    .op = "add_rms_norm",
    .check = CheckAddRmsNorm,
    .kernels = kKernels,
    .may_alias = kAliases,
    .traits = {.fuses = {.first = "add", .second = "rms_norm", .output = 0, .input = 0}}};

}  // namespace

AddRmsNormArgs ToAddRmsNormArgs(const OpCall& call) {
  return {.x = call.inputs[0],
          .residual = call.inputs[1],
          .w = call.inputs[2],
          .y = call.outputs[0],
          .sum = call.outputs[1],
          .eps = static_cast<float>(call.attributes->Get("eps", 0)),
          .weight_offset = static_cast<float>(call.attributes->Get("weight_offset", 0))};
}

const OpDefinition& AddRmsNormOp() { return kDefinition; }

}  // namespace pagemill::ops
