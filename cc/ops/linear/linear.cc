#include "cc/ops/linear/linear.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cc/ops/block_format/block_format.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/linear/bf16_panel.h"
#include "cc/ops/linear/block_panel.h"
#include "cc/ops/linear/kernel_set.h"
#include "cc/ops/linear/linear_driver.h"
#include "cc/ops/linear/onednn/onednn_rows.h"
#include "cc/ops/linear/packed_driver.h"
#include "cc/ops/linear/packed_kernel_set.h"
#include "cc/ops/operand_check.h"

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
  check.Input(0, "x", DType::kF32, "N,K*");
  for (size_t i = 0; i < matrices; ++i) {
    const char rows = kRowSymbols[i];
    check.Output(i, "y", DType::kF32, std::string{'N', ',', rows, '*'});
    const size_t bias = 2 + 2 * i;
    if (bias >= call.inputs.size() || call.inputs[bias].rank == 0) continue;
    check.Input(bias, "bias", DType::kF32, std::string{rows});
  }
  return check.Result();
}

template <const linear::KernelSet* kKernels>
void Run(const OpCall& call, KernelContext& context) {
  linear::RunKernelSet(*kKernels, call, context);
}

[[maybe_unused]] bool Bf16Weights(const OpCall& call) {
  return call.inputs[1].dtype == DType::kBF16;
}

#if defined(__x86_64__)
bool VnniOnBlocks(const device::Capabilities& caps, const OpCall& call) {
  return caps.avx512 && caps.avx512_vnni && IsBlockFormat(call.inputs[1].dtype);
}

bool AvxVnniOnBlocks(const device::Capabilities& caps, const OpCall& call) {
  return caps.avx_vnni && IsBlockFormat(call.inputs[1].dtype);
}

bool Avx2OnBlocks(const device::Capabilities& caps, const OpCall& call) {
  return caps.avx2 && IsBlockFormat(call.inputs[1].dtype);
}

bool AmxOnBf16(const device::Capabilities& caps, const OpCall& call) {
  // linear_amx.cc is compiled for the vectors of all CPUs that have tiles.
  return caps.amx_bf16 && caps.avx512_bf16 && caps.avx512_vnni && Bf16Weights(call);
}

bool AmxOnBlocks(const device::Capabilities& caps, const OpCall& call) {
  return caps.amx_int8 && caps.avx512_bf16 && VnniOnBlocks(caps, call);
}

bool Avx512Bf16OnBf16(const device::Capabilities& caps, const OpCall& call) {
  return caps.avx512_bf16 && caps.avx512_vnni && Bf16Weights(call);
}

constexpr WeightPacking kBlockPanels =
    linear::PackingOfSet<&linear::kAvx512VnniKernels>(linear::kBlockPanelLayout);
constexpr WeightPacking kBf16Panels =
    linear::PackingOfSet<&linear::kAvx512Bf16Kernels>(linear::kBf16PanelLayout);
#elif defined(__aarch64__)
bool DotprodOnBlocks(const device::Capabilities& caps, const OpCall& call) {
  return caps.asimd_dotprod && IsBlockFormat(call.inputs[1].dtype);
}

bool I8mmOnBlocks(const device::Capabilities& caps, const OpCall& call) {
  return caps.asimd_i8mm && DotprodOnBlocks(caps, call);
}

bool AsimdBf16OnBf16(const device::Capabilities& caps, const OpCall& call) {
  return caps.asimd_bf16 && caps.asimd_dotprod && Bf16Weights(call);
}

constexpr WeightPacking kBlockPanels =
    linear::PackingOfSet<&linear::kAsimdDotprodKernels>(linear::kBlockPanelLayout);
constexpr WeightPacking kBf16Panels =
    linear::PackingOfSet<&linear::kAsimdBf16Kernels>("bf16 groups of 16, version 1");
#elif defined(__s390x__)
bool VxeOnBlocks(const device::Capabilities& caps, const OpCall& call) {
  return caps.vxe && IsBlockFormat(call.inputs[1].dtype);
}

constexpr WeightPacking kBlockPanels =
    linear::PackingOfSet<&linear::kVxeInt8Kernels>(linear::kBlockPanelLayout);
#endif

constexpr KernelRow kRows[] = {
#if defined(__x86_64__)
    linear::PackedRow<&linear::kAvx512VnniKernels>("avx512_vnni", 40, VnniOnBlocks,
                                                   ActivationPrecision::kInt8, &kBlockPanels),
    linear::PackedRow<&linear::kAvx512VnniMixedKernels>("avx512_vnni_mixed", 37, VnniOnBlocks,
                                                        ActivationPrecision::kBf16, &kBlockPanels),
    linear::PackedRow<&linear::kAmxInt8Kernels>("amx_int8", 42, AmxOnBlocks,
                                                ActivationPrecision::kInt8, &kBlockPanels),
    linear::PackedRow<&linear::kAmxInt16Kernels>("amx_int8_int16", 38, AmxOnBlocks,
                                                 ActivationPrecision::kBf16, &kBlockPanels),
    linear::PackedRow<&linear::kAmxBf16Kernels>("amx_bf16", 38, AmxOnBf16,
                                                ActivationPrecision::kBf16, &kBf16Panels),
    linear::PackedRow<&linear::kAvx512Bf16Kernels>("avx512_bf16", 36, Avx512Bf16OnBf16,
                                                   ActivationPrecision::kBf16, &kBf16Panels),
    linear::PackedRow<&linear::kAvx512VnniInt16Kernels>("avx512_vnni_int16", 35, VnniOnBlocks,
                                                        ActivationPrecision::kBf16, &kBlockPanels),
    linear::PackedRow<&linear::kAvxVnniInt8Kernels>("avx_vnni_int8", 34, AvxVnniOnBlocks,
                                                    ActivationPrecision::kInt8, &kBlockPanels),
    linear::PackedRow<&linear::kAvx2Int8Kernels>("avx2_int8", 33, Avx2OnBlocks,
                                                 ActivationPrecision::kInt8, &kBlockPanels),
    linear::PackedRow<&linear::kAvxVnniMixedKernels>("avx_vnni_mixed", 32, AvxVnniOnBlocks,
                                                     ActivationPrecision::kBf16, &kBlockPanels),
    linear::PackedRow<&linear::kAvx2MixedKernels>("avx2_int8_mixed", 31, Avx2OnBlocks,
                                                  ActivationPrecision::kBf16, &kBlockPanels),
    linear::PackedRow<&linear::kAvxVnniInt16Kernels>("avx_vnni_int16", 26, AvxVnniOnBlocks,
                                                     ActivationPrecision::kBf16, &kBlockPanels),
    linear::PackedRow<&linear::kAvx2Int16Kernels>("avx2_int16", 25, Avx2OnBlocks,
                                                  ActivationPrecision::kBf16, &kBlockPanels),
    {"linear", "avx512", 30, OnAvx512, Run<&linear::kAvx512Kernels>, linear::DriverWorkspaceBytes},
    {"linear", "avx2", 20, OnAvx2, Run<&linear::kAvx2Kernels>, linear::DriverWorkspaceBytes},
#elif defined(__aarch64__)
    linear::PackedRow<&linear::kAsimdI8mmKernels>("asimd_i8mm", 42, I8mmOnBlocks,
                                                  ActivationPrecision::kInt8, &kBlockPanels),
    linear::PackedRow<&linear::kAsimdI8mmInt16Kernels>("asimd_i8mm_int16", 37, I8mmOnBlocks,
                                                       ActivationPrecision::kBf16, &kBlockPanels),
    linear::PackedRow<&linear::kAsimdDotprodKernels>("asimd_dotprod", 40, DotprodOnBlocks,
                                                     ActivationPrecision::kInt8, &kBlockPanels),
    linear::PackedRow<&linear::kAsimdBf16Kernels>("asimd_bf16", 36, AsimdBf16OnBf16,
                                                  ActivationPrecision::kBf16, &kBf16Panels),
    linear::PackedRow<&linear::kAsimdDotprodInt16Kernels>(
        "asimd_dotprod_int16", 35, DotprodOnBlocks, ActivationPrecision::kBf16, &kBlockPanels),
#elif defined(__s390x__)
    linear::PackedRow<&linear::kVxeInt8Kernels>("vxe_int8", 40, VxeOnBlocks,
                                                ActivationPrecision::kInt8, &kBlockPanels),
    linear::PackedRow<&linear::kVxeInt16Kernels>("vxe_int16", 35, VxeOnBlocks,
                                                 ActivationPrecision::kBf16, &kBlockPanels),
#endif
    {"linear", "portable", 10, OnEveryCpu, Run<&linear::kPortableKernels>,
     linear::DriverWorkspaceBytes},
    {"linear", "reference", 0, OnEveryCpu, linear::RunReference, linear::ReferenceWorkspaceBytes},
};

std::vector<KernelRow> AllRows() {
  std::vector<KernelRow> rows(std::begin(kRows), std::end(kRows));
  const std::span<const KernelRow> onednn = linear::OnednnRows();
  rows.insert(rows.end(), onednn.begin(), onednn.end());
  return rows;
}

}  // namespace

const OpDefinition& LinearOp() {
  static const std::vector<KernelRow> rows = AllRows();
  static const OpDefinition definition{"linear", CheckLinear, rows};
  return definition;
}

}  // namespace pagemill::ops
