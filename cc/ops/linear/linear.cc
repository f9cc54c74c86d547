#include "cc/ops/linear/linear.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cc/ops/kernel_support.h"
#include "cc/ops/linear/kernel_table/linear_kernels.h"
#include "cc/ops/linear/onednn/onednn_kernels.h"
#include "cc/ops/linear/packed_gemm.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/quantized/packed_integers.h"
#include "cc/ops/quantized/quantized.h"
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
  for (size_t i = 0; i < matrices; ++i) {
    const TensorView& w = call.inputs[1 + 2 * i];
    if (const Status fits = CheckWeight(w); !fits.ok()) check.Require(false, fits.message());
    check.Require(HaveOneFormat(w, call.inputs[1]), "the matrices of a call must have one format");
    check.Input(1 + 2 * i, "W", call.inputs[1].dtype, std::string{kRowSymbols[i], ',', 'K'});
  }
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

Precision AutomaticActivations(const OpCall& call) {
  return AutomaticPrecision(call.inputs[1]);
}

using linear::SupportsWeights;

template <SupportsWeights kSupports>
bool OnCall(const device::Capabilities& caps, const OpCall& call) {
  return HasF32Activations(call) && kSupports(caps, call.inputs[1]);
}

template <SupportsWeights kSupports>
bool OnStored(const device::Capabilities& caps, const OpCall& call) {
  return OnCall<kSupports>(caps, call) && call.inputs[1].parts == nullptr &&
         !IsConverted(call.inputs[1]);
}

template <SupportsWeights kSupports>
bool OnConverted(const device::Capabilities& caps, const OpCall& call) {
  return OnCall<kSupports>(caps, call) && IsConverted(call.inputs[1]);
}

constexpr WeightPacking kBlockRows = BlockRows(kWeightInputs);

template <class Slices>
constexpr WeightPacking kPacking = linear::PackingOfGemm<Slices::kPacker>(Slices::kLayout);

struct Table {
  std::vector<Kernel> kernels = {};

  template <const linear::PackedGemm* kKernels, class Slices, SupportsWeights kSupports>
  void Packed(std::string_view name, int32_t priority, Precision activations) {
    kernels.push_back(linear::PackedKernel<kKernels>(name, priority, OnCall<kSupports>, activations,
                                                     &kPacking<Slices>));
  }

  template <const linear::PackedGemm* kKernels, SupportsWeights kSupports>
  void Stored(std::string_view name, int32_t priority) {
    kernels.push_back(linear::PackedKernel<kKernels>(name, priority, OnStored<kSupports>,
                                                     Precision::kF32, nullptr));
    kernels.push_back(linear::PackedKernel<kKernels>(name, priority, OnConverted<kSupports>,
                                                     Precision::kF32, &kBlockRows));
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
      .automatic_activations = AutomaticActivations,
      .traits = {.matrices = {.first = 1, .stride = 2, .max_count = kMaxMatrices}}};
  return definition;
}

}  // namespace pagemill::ops
