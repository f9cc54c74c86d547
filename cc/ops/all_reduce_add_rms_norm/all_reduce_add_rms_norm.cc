#include "cc/ops/all_reduce_add_rms_norm/all_reduce_add_rms_norm.h"

#include <algorithm>
#include <string_view>

#include "cc/ops/add_rms_norm/add_rms_norm.h"
#include "cc/ops/all_reduce/all_reduce.h"
#include "cc/ops/collective.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {
namespace {

Status CheckAllReduceAddRmsNorm(const OpCall& call) {
  OperandCheck check("all_reduce_add_rms_norm", call, /*inputs=*/3, /*outputs=*/3);
  check.Input(2, "w", DType::kF32, "H");
  check.ActInput(0, "x", "N,H");
  check.ActInput(1, "residual", "N,H");
  check.ActOutput(0, "y", "N,H");
  check.ActOutput(1, "sum", "N,H");
  check.ActOutput(2, "reduced", "N,H");
  if (!check.ok()) return check.Result();
  check.Require(check.Dim('H') > 0, "rows must not be empty");
  check.Require(call.attributes->Get("eps", 0) > 0, "attribute eps must be above 0");
  CheckGroupAttributes(check, *call.attributes);
  return check.Result();
}

const Kernel& KernelOf(const OpDefinition& op, std::string_view name) {
  return *std::ranges::find(op.kernels, name, &Kernel::name);
}

void Run(const OpCall& call, KernelContext& context, std::string_view norm) {
  const AllReduceThenNorm parts(call);
  KernelOf(AllReduceOp(), "dense").run(parts.all_reduce(), context);
  KernelOf(AddRmsNormOp(), norm).run(parts.add_rms_norm(), context);
}

void RunPortable(const OpCall& call, KernelContext& context) { Run(call, context, "portable"); }
void RunReference(const OpCall& call, KernelContext& context) { Run(call, context, "reference"); }
#if defined(__x86_64__)
void RunAvx2(const OpCall& call, KernelContext& context) { Run(call, context, "avx2"); }
void RunAvx512(const OpCall& call, KernelContext& context) { Run(call, context, "avx512"); }
#endif

int64_t ReferenceWorkspaceBytes(const OpCall& call, int32_t num_threads) {
  return AddRmsNormReferenceWorkspaceBytes(AllReduceThenNorm(call).add_rms_norm(), num_threads);
}

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"all_reduce_add_rms_norm", "avx512", 30, OnAvx512, RunAvx512},
    {"all_reduce_add_rms_norm", "avx2", 20, OnAvx2, RunAvx2},
#endif
    {"all_reduce_add_rms_norm", "portable", 10, OnEveryCpu, RunPortable},
    {"all_reduce_add_rms_norm", "reference", 0, InEveryType, RunReference,
     ReferenceWorkspaceBytes},
};

constexpr AliasRule kAliases[] = {{.input = 1, .output = 1}, {.input = 0, .output = 2}};

// Models add what a branch gives to the residual: it is the second input of the addition.
constexpr OpDefinition kDefinition{
    .op = "all_reduce_add_rms_norm",
    .check = CheckAllReduceAddRmsNorm,
    .kernels = kKernels,
    .may_alias = kAliases,
    .traits = {
        .fuses = {.first = "all_reduce", .second = "add_rms_norm", .output = 0, .input = 1}}};

}  // namespace

AllReduceThenNorm::AllReduceThenNorm(const OpCall& call)
    : norm_inputs_{call.outputs[2], call.inputs[1], call.inputs[2]},
      all_reduce_{.inputs = call.inputs.first(1),
                  .outputs = call.outputs.subspan(2, 1),
                  .attributes = call.attributes},
      add_rms_norm_{.inputs = norm_inputs_,
                    .outputs = call.outputs.first(2),
                    .attributes = call.attributes} {}

const OpDefinition& AllReduceAddRmsNormOp() { return kDefinition; }

}  // namespace pagemill::ops
