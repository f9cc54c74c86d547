#include "cc/ops/grouped_linear/grouped_linear.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "cc/ops/grouped_linear/grouped_driver.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/linear/kernel_table/linear_kernels.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/linear/packed_gemm.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/quantized/packed_integers.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

using linear::SupportsWeights;

// Rows of each stack's matrices, as OperandCheck names dimensions.
constexpr std::string_view kRowSymbols = "MABCDFGH";
static_assert(kRowSymbols.size() == kMaxMatrices);

// Bit i: input i is a stack.
constexpr uint32_t kStackInputs = ((1u << 2 * kMaxMatrices) - 1) / 3
                                  << grouped_linear::WeightOperand(0);

Status CheckGroupedLinear(const OpCall& call) {
  const size_t stacks = std::clamp<size_t>(call.outputs.size(), 1, kMaxMatrices);
  OperandCheck check("grouped_linear", call, grouped_linear::WeightOperand(stacks), stacks);
  if (!check.ok()) return check.Result();
  const TensorView& first = call.inputs[grouped_linear::WeightOperand(0)];
  check.Input(1, "ids", DType::kI32, "N,J");
  for (size_t i = 0; i < stacks; ++i) {
    const TensorView& w = call.inputs[grouped_linear::WeightOperand(i)];
    check.Input(grouped_linear::WeightOperand(i), "W", first.dtype,
                std::string{'E', ',', kRowSymbols[i], ',', 'K'});
    if (!check.ok()) return check.Result();
    check.Require(check.Dim('E') > 0 && check.Dim('K') > 0, "W is empty");
    if (const Status fits = CheckWeight(w); !fits.ok()) check.Require(false, fits.message());
    check.Require(HaveOneFormat(w, first), "the stacks of a call must have one format");
  }
  check.ActInput(0, "x", "N,X*");
  const int64_t width = check.Dim('X'), k = check.Dim('K');
  check.Require(width == k || width == check.Dim('J') * k,
                "x has " + std::to_string(width) + " elements a token, neither K nor J * K");
  for (size_t i = 0; i < stacks; ++i) {
    const char rows = kRowSymbols[i];
    check.ActOutput(i, "y", std::string{'N', ',', 'J', ',', rows, '*'});
    const size_t bias = grouped_linear::BiasOperand(i);
    if (call.inputs[bias].rank == 0) continue;
    check.Input(bias, "bias", DType::kF32, std::string{'E', ',', rows});
  }
  return check.Result();
}

template <SupportsWeights kSupports>
bool OnCall(const device::Capabilities& caps, const OpCall& call) {
  return HasF32Activations(call) && kSupports(caps, call.inputs[grouped_linear::WeightOperand(0)]);
}

template <SupportsWeights kSupports>
bool OnStored(const device::Capabilities& caps, const OpCall& call) {
  const TensorView& w = call.inputs[grouped_linear::WeightOperand(0)];
  return OnCall<kSupports>(caps, call) && w.parts == nullptr && !IsConverted(w);
}

template <SupportsWeights kSupports>
bool OnConverted(const device::Capabilities& caps, const OpCall& call) {
  return OnCall<kSupports>(caps, call) &&
         IsConverted(call.inputs[grouped_linear::WeightOperand(0)]);
}

constexpr WeightPacking kBlockRows = BlockRows(kStackInputs);

Precision AutomaticActivations(const OpCall& call) {
  return AutomaticPrecision(call.inputs[grouped_linear::WeightOperand(0)]);
}

template <class Slices>
constexpr WeightPacking kPacking = {
    .layout = Slices::kLayout,
    .inputs = kStackInputs,
    .bytes =
        [](const TensorView& w) { return grouped_linear::PackedStackBytes(*Slices::kPacker, w); },
    .pack =
        [](const TensorView& w, std::byte* packed, device::ThreadPool& pool) {
          return grouped_linear::PackStack(*Slices::kPacker, w, packed, pool);
        },
    .view = linear::PackedView};

class Table {
 public:
  std::vector<Kernel> kernels = {};

  template <const linear::PackedGemm* kKernels, class Slices, SupportsWeights kSupports>
  void Packed(std::string_view name, int32_t priority, Precision activations) {
    Add<kKernels>(name, priority, OnCall<kSupports>, activations, &kPacking<Slices>);
  }

  template <const linear::PackedGemm* kKernels, SupportsWeights kSupports>
  void Stored(std::string_view name, int32_t priority) {
    Add<kKernels>(name, priority, OnStored<kSupports>, Precision::kF32, nullptr);
    Add<kKernels>(name, priority, OnConverted<kSupports>, Precision::kF32, &kBlockRows);
  }

 private:
  template <const linear::PackedGemm* kKernels>
  void Add(std::string_view name, int32_t priority, decltype(Kernel::supports) supports,
           Precision activations, const WeightPacking* packing) {
    kernels.push_back(
        {.op = "grouped_linear",
         .name = name,
         .priority = priority,
         .supports = supports,
         .run = [](const OpCall& call,
                   KernelContext& context) { grouped_linear::RunPacked(*kKernels, call, context); },
         .workspace_bytes =
             [](const OpCall& call, int32_t num_threads) {
               return grouped_linear::PackedWorkspaceBytes(*kKernels, call, num_threads);
             },
         .activations = activations,
         .packing = packing});
  }
};

constexpr F32Kernel kReference{.act_inputs = 0b1,
                               .run = grouped_linear::RunReference,
                               .workspace_bytes = grouped_linear::ReferenceWorkspaceBytes};

std::vector<Kernel> AllKernels() {
  Table table;
  linear::VisitKernels(table);
  table.kernels.push_back(WidenedReference<&kReference>("grouped_linear"));
  return table.kernels;
}

}  // namespace

const OpDefinition& GroupedLinearOp() {
  static const std::vector<Kernel> kernels = AllKernels();
  static const OpDefinition definition{
      .op = "grouped_linear",
      .check = CheckGroupedLinear,
      .kernels = kernels,
      .automatic_activations = AutomaticActivations,
      .traits = {.matrices = {.first = 2, .stride = 2, .max_count = kMaxMatrices, .choices = 1}}};
  return definition;
}

}  // namespace pagemill::ops
