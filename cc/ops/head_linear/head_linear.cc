#include "cc/ops/head_linear/head_linear.h"

#include <cstdint>
#include <string_view>

#include "cc/ops/head_linear/head_driver.h"
#include "cc/ops/head_linear/scaled_heads.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/quantized/packed_integers.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

using head_linear::HeadKernels;

Status CheckHeadLinear(const OpCall& call) {
  OperandCheck check("head_linear", call, /*inputs=*/2, /*outputs=*/1);
  check.IntegerAttribute("transposed", /*fallback=*/0, 0, 1);
  if (!check.ok()) return check.Result();
  const bool transposed = call.attributes->GetInt("transposed", 0) != 0;
  const DType dtype = call.inputs[1].dtype;
  if (const Status fits = CheckWeight(call.inputs[1]); !fits.ok()) {
    check.Require(false, fits.message());
  }
  check.ActInput(0, "x", "N,J,K");
  check.Input(1, "W", dtype, transposed ? "J,K,M" : "J,M,K");
  check.ActOrF32Output(0, "y", "N,J,M");
  if (!check.ok()) return check.Result();
  check.Require(check.Dim(transposed ? 'M' : 'K') > 0, "W is empty");
  return check.Result();
}

constexpr HeadKernels kPortable = {&linear::kFloatPortable, &kRowSumsPortable,
                                   linear::DequantizePortable};
#if defined(__x86_64__)
constexpr HeadKernels kAvx2 = {&linear::kFloatAvx2, &kRowSumsAvx2, linear::DequantizeAvx2};
constexpr HeadKernels kAvx512 = {&linear::kFloatAvx512, &kRowSumsAvx512, linear::DequantizeAvx512};
#endif

template <const HeadKernels* kKernels>
void Run(const OpCall& call, KernelContext& context) {
  head_linear::RunKernels(*kKernels, call, context);
}

template <const HeadKernels* kKernels>
int64_t WorkspaceBytes(const OpCall& call, int32_t num_threads) {
  return head_linear::WorkspaceBytes(*kKernels, call, num_threads);
}

constexpr F32Kernel kReference{.act_inputs = 0b1,
                               .run = head_linear::RunReference,
                               .workspace_bytes = head_linear::ReferenceWorkspaceBytes};

using Supports = bool (*)(const device::Capabilities& caps, const OpCall& call);

constexpr WeightPacking kBlockRows = BlockRows(/*inputs=*/0b10);

template <const HeadKernels* kHeads, Supports kSupports>
constexpr Kernel OnStored(std::string_view name, int32_t priority) {
  return {.op = "head_linear",
          .name = name,
          .priority = priority,
          .supports =
              [](const device::Capabilities& caps, const OpCall& call) {
                return kSupports(caps, call) && call.inputs[1].parts == nullptr &&
                       !IsConverted(call.inputs[1]);
              },
          .run = Run<kHeads>,
          .workspace_bytes = WorkspaceBytes<kHeads>};
}

template <const HeadKernels* kHeads, Supports kSupports>
constexpr Kernel OnConverted(std::string_view name, int32_t priority) {
  Kernel kernel = OnStored<kHeads, kSupports>(name, priority);
  kernel.supports = [](const device::Capabilities& caps, const OpCall& call) {
    return kSupports(caps, call) && IsConverted(call.inputs[1]);
  };
  kernel.packing = &kBlockRows;
  return kernel;
}

template <const HeadKernels* kHeads, Supports kSupports>
constexpr Kernel OnScaled(std::string_view name, int32_t priority) {
  Kernel kernel = OnStored<kHeads, kSupports>(name, priority);
  kernel.supports = [](const device::Capabilities& caps, const OpCall& call) {
    return kSupports(caps, call) && IsScaled(call.inputs[1]);
  };
  kernel.packing = &head_linear::kScaledHeads;
  return kernel;
}

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    OnStored<&kAvx512, OnAvx512>("avx512", 30),
    OnConverted<&kAvx512, OnAvx512>("avx512", 30),
    OnScaled<&kAvx512, OnAvx512>("avx512", 30),
    OnStored<&kAvx2, OnAvx2>("avx2", 20),
    OnConverted<&kAvx2, OnAvx2>("avx2", 20),
    OnScaled<&kAvx2, OnAvx2>("avx2", 20),
#endif
    OnStored<&kPortable, OnEveryCpu>("portable", 10),
    OnConverted<&kPortable, OnEveryCpu>("portable", 10),
    OnScaled<&kPortable, OnEveryCpu>("portable", 10),
    WidenedReference<&kReference>("head_linear"),
};

constexpr OpDefinition kDefinition{.op = "head_linear",
                                   .check = CheckHeadLinear,
                                   .kernels = kKernels,
                                   .traits = {.matrices = {.first = 1, .stride = 1}}};

}  // namespace

const OpDefinition& HeadLinearOp() { return kDefinition; }

}  // namespace pagemill::ops
