#include "cc/ops/linear/linear.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cc/ops/kernel_support.h"
#include "cc/ops/linear/kernel_table/linear_kernels.h"
#include "cc/ops/linear/linear_driver.h"
#include "cc/ops/linear/onednn/onednn_kernels.h"
#include "cc/ops/linear/packed_driver.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

// Rows of each matrix of a call, as OperandCheck names dimensions.
constexpr std::string_view kRowSymbols = "MABCDEFG";
static_assert(kRowSymbols.size() == kMaxMatrices);

Status CheckLinear(const OpCall& call) {
  const size_t matrices = std::clamp<size_t>(call.outputs.size(), 1, kMaxMatrices);
  const bool no_bias_operand = matrices == 1 && call.inputs.size() == 2;
  OperandCheck check("linear", call, no_bias_operand ? 2 : 1 + 2 * matrices, matrices);
  if (!check.ok()) return check.Result();
  const DType dtype = call.inputs[1].dtype;
  check.Require(IsWeightDType(dtype),
                "W must be a weight dtype, got " + std::string(Info(dtype).name));
  check.Input(1, "W", dtype, "M,K");
  for (size_t i = 1; i < matrices; ++i) {
    check.Input(1 + 2 * i, "W", dtype, std::string{kRowSymbols[i], ',', 'K'});
  }
  check.Require(check.Dim('K') % Info(dtype).block_elements == 0,
                "rows of W have " + std::to_string(check.Dim('K')) +
                    " elements, no multiple of the block of " +
                    std::to_string(Info(dtype).block_elements) + " of " +
                    std::string(Info(dtype).name));
  check.ActInput(0, "x", "N,K*");
  for (size_t i = 0; i < matrices; ++i) {
    const char rows = kRowSymbols[i];
    check.ActOrF32Output(i, "y", std::string{'N', ',', rows, '*'});
    const size_t bias = 2 + 2 * i;
    if (bias >= call.inputs.size() || call.inputs[bias].rank == 0) continue;
    check.Input(bias, "bias", DType::kF32, std::string{rows});
  }
  return check.Result();
}

using linear::SupportsWeights;

template <SupportsWeights kSupports>
bool OnCall(const device::Capabilities& caps, const OpCall& call) {
  return HasF32Activations(call) && kSupports(caps, call.inputs[1].dtype);
}

template <class Panels>
constexpr WeightPacking kPacking = linear::PackingOfSet<Panels::kPacker>(Panels::kLayout);

struct Table {
  std::vector<Kernel> kernels = {};

  template <const linear::PackedKernelSet* kKernels, class Panels, SupportsWeights kSupports>
  void Packed(std::string_view name, int32_t priority, Precision activations) {
    kernels.push_back(linear::PackedKernel<kKernels>(name, priority, OnCall<kSupports>, activations,
                                                     &kPacking<Panels>));
  }

  template <const linear::KernelSet* kKernels, SupportsWeights kSupports>
  void Stored(std::string_view name, int32_t priority) {
    const auto run = [](const OpCall& call, KernelContext& context) {
      linear::RunKernelSet(*kKernels, call, context);
    };
    kernels.push_back(
        {"linear", name, priority, OnCall<kSupports>, run, linear::DriverWorkspaceBytes});
  }
};

constexpr F32Kernel kReference{.act_inputs = 0b1,
                               .run = linear::RunReference,
                               .workspace_bytes = linear::ReferenceWorkspaceBytes};

std::vector<Kernel> AllKernels() {
  Table table;
  linear::VisitKernels(table);
  table.kernels.push_back(WidenedReference<&kReference>("linear"));
  const std::span<const Kernel> onednn = linear::OnednnKernels();
  table.kernels.insert(table.kernels.end(), onednn.begin(), onednn.end());
  return table.kernels;
}

}  // namespace

const OpDefinition& LinearOp() {
  static const std::vector<Kernel> kernels = AllKernels();
  static const OpDefinition definition{
      .op = "linear",
      .check = CheckLinear,
      .kernels = kernels,
      .traits = {.matrices = {.first = 1, .stride = 2, .max_count = kMaxMatrices}}};
  return definition;
}

}  // namespace pagemill::ops
