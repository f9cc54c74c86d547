#include "cc/ops/scaled_linear/scaled_linear.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "cc/ops/kernel_support.h"
#include "cc/ops/linear/linear.h"  // kMaxMatrices
#include "cc/ops/linear/packed_driver.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/scaled_linear/scaled_linear_ref.h"
#include "cc/ops/scaled_linear/scaled_panel.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

using linear::PackedKernelSet;

// Rows of each matrix of a call, and rows of its scales, as OperandCheck names dimensions.
constexpr std::string_view kRowSymbols = "MABCDEFG";
constexpr std::string_view kScaleSymbols = "RSTUVWXY";
static_assert(kRowSymbols.size() == kMaxMatrices && kScaleSymbols.size() == kMaxMatrices);

int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

void CheckMatrix(const OpCall& call, size_t i, OperandCheck& check) {
  const char rows = kRowSymbols[i], scale_rows = kScaleSymbols[i];
  const size_t at = 1 + 3 * i;
  check.Input(at, "W", call.inputs[1].dtype, std::string{rows, ',', 'K'});
  check.Input(at + 1, "scales", DType::kF32, std::string{scale_rows, ',', 'L'});
  if (!check.ok()) return;
  const int64_t m = check.Dim(rows), k = check.Dim('K');
  const int64_t block_rows = call.attributes->GetInt("block_rows", 1);
  const int64_t block_columns = call.attributes->GetInt("block_columns", std::max<int64_t>(1, k));
  check.Require(check.Dim(scale_rows) == DivideUp(m, block_rows) &&
                    check.Dim('L') == DivideUp(k, block_columns),
                "scales are [" + std::to_string(check.Dim(scale_rows)) + "," +
                    std::to_string(check.Dim('L')) + "], but W is [" + std::to_string(m) + "," +
                    std::to_string(k) + "] in blocks of " + std::to_string(block_rows) + " x " +
                    std::to_string(block_columns));
  check.ActOrF32Output(i, "y", std::string{'N', ',', rows, '*'});
  if (at + 2 >= call.inputs.size() || call.inputs[at + 2].rank == 0) return;
  check.Input(at + 2, "bias", DType::kF32, std::string{rows});
}

Status CheckScaledLinear(const OpCall& call) {
  const size_t matrices = std::clamp<size_t>(call.outputs.size(), 1, kMaxMatrices);
  const bool no_bias_operand = matrices == 1 && call.inputs.size() == 3;
  OperandCheck check("scaled_linear", call, no_bias_operand ? 3 : 1 + 3 * matrices, matrices);
  if (!check.ok()) return check.Result();
  const DType dtype = call.inputs[1].dtype;
  check.Require(dtype == DType::kI8 || dtype == DType::kF8E4M3,
                "W must be i8 or f8_e4m3, got " + std::string(Info(dtype).name));
  check.IntegerAttribute("int8_activations", 0, 0, 1);
  check.IntegerAttribute("block_rows", 1, 1, int64_t{1} << 40);
  check.IntegerAttribute("block_columns", 4, 1, int64_t{1} << 40);
  check.Input(1, "W", dtype, "M,K");
  const int64_t columns = call.attributes->GetInt("block_columns", check.Dim('K'));
  check.Require(columns % 4 == 0 || columns >= check.Dim('K'),
                "block_columns must be a multiple of 4, got " + std::to_string(columns));
  check.ActInput(0, "x", "N,K*");
  for (size_t i = 0; i < matrices && check.ok(); ++i) CheckMatrix(call, i, check);
  return check.Result();
}

Precision AutomaticActivations(const OpCall& call) {
  return call.attributes->GetInt("int8_activations", 0) == 1 ? Precision::kInt8Block
                                                             : Precision::kMixedBlock;
}

// f32 activations, a scale a row, and sums that int32 holds.
[[maybe_unused]] bool FitsInt8(const OpCall& call) {
  const int64_t k = call.inputs[1].shape[1];
  return HasF32Activations(call) && call.inputs[1].dtype == DType::kI8 && k <= kMaxInt8K &&
         call.attributes->GetInt("block_columns", k) >= k;
}

#if defined(__x86_64__)
bool VnniOnInt8(const device::Capabilities& caps, const OpCall& call) {
  return caps.cpu.avx512 && caps.cpu.avx512_vnni && FitsInt8(call);
}

bool AmxOnInt8(const device::Capabilities& caps, const OpCall& call) {
  // scaled_linear_amx.cc is compiled for the vectors of all CPUs that have tiles.
  return caps.cpu.amx_int8 && caps.cpu.avx512_bf16 && VnniOnInt8(caps, call);
}

bool Avx512Bf16OnFp8(const device::Capabilities& caps, const OpCall& call) {
  return caps.cpu.avx512_bf16 && caps.cpu.avx512_vnni && HasF32Activations(call) &&
         call.inputs[1].dtype == DType::kF8E4M3;
}
#elif defined(__aarch64__)
bool DotprodOnInt8(const device::Capabilities& caps, const OpCall& call) {
  return caps.cpu.asimd_dotprod && FitsInt8(call);
}
#endif

// Bit i: input i is a matrix.
constexpr uint32_t kWeightInputs = 0x492492;
static_assert(kWeightInputs == ((1u << 3 * kMaxMatrices) - 1) / 7 * 2);

// One order for all rows: whichever are chosen, a weight is packed once.
constexpr WeightPacking kPanels = {
    .layout = scaled::kScaledPanelLayout,
    .inputs = kWeightInputs,
    .bytes = [](const TensorView& w) { return linear::PackedBytes(scaled::kPortableKernels, w); },
    .pack =
        [](const TensorView& w, std::byte* packed, device::ThreadPool& pool) {
          linear::PackPanels(scaled::kPortableKernels, w, packed, pool);
        }};

template <const PackedKernelSet* kKernels>
constexpr Kernel Row(std::string_view name, int32_t priority, decltype(Kernel::supports) supports,
                     Precision activations) {
  return {.op = "scaled_linear",
          .name = name,
          .priority = priority,
          .supports = supports,
          .run = [](const OpCall& call,
                    KernelContext& context) { linear::RunPacked(*kKernels, call, context); },
          .workspace_bytes =
              [](const OpCall& call, int32_t num_threads) {
                return linear::PackedWorkspaceBytes(*kKernels, call, num_threads);
              },
          .activations = activations,
          .packing = &kPanels,
          .run_row_maxima =
              [](const OpCall& call, KernelContext& context, int64_t columns, RowMaximum* maxima) {
                linear::RunPackedMaxima(*kKernels, call, context, columns, maxima);
              }};
}

constexpr F32Kernel kReference{.act_inputs = 0b1, .run = scaled::RunReference};

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    Row<&scaled::kAmxInt8Kernels>("amx_int8", 42, AmxOnInt8, Precision::kInt8Block),
    Row<&scaled::kAvx512VnniKernels>("avx512_vnni", 40, VnniOnInt8, Precision::kInt8Block),
    Row<&scaled::kAvx512Bf16Kernels>("avx512_bf16", 36, Avx512Bf16OnFp8, Precision::kBf16),
    Row<&scaled::kAvx512Kernels>("avx512", 30, OnAvx512, Precision::kF32),
    Row<&scaled::kAvx2Kernels>("avx2", 20, OnAvx2, Precision::kF32),
#elif defined(__aarch64__)
    Row<&scaled::kAsimdDotprodKernels>("asimd_dotprod", 40, DotprodOnInt8, Precision::kInt8Block),
#endif
    Row<&scaled::kPortableKernels>("portable", 10, OnEveryCpu, Precision::kF32),
    WidenedReference<&kReference>("scaled_linear"),
};

constexpr OpDefinition kDefinition{
    .op = "scaled_linear",
    .check = CheckScaledLinear,
    .kernels = kKernels,
    .automatic_activations = AutomaticActivations,
    .traits = {.matrices = {.first = 1, .stride = 3, .max_count = kMaxMatrices}}};

}  // namespace

const OpDefinition& ScaledLinearOp() { return kDefinition; }

}  // namespace pagemill::ops
