#include "cc/ops/head_linear/head_linear.h"

#include <string>

#include "cc/ops/block_format/block_format.h"
#include "cc/ops/head_linear/head_driver.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
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
  check.Require(IsWeightDType(dtype),
                "W must be a weight dtype, got " + std::string(Info(dtype).name));
  check.ActInput(0, "x", "N,J,K");
  check.Input(1, "W", dtype, transposed ? "J,K,M" : "J,M,K");
  check.ActOutput(0, "y", "N,J,M");
  if (!check.ok()) return check.Result();
  const int64_t elements = check.Dim(transposed ? 'M' : 'K');
  check.Require(
      elements > 0 && elements % Info(dtype).block_elements == 0,
      "rows of W have " + std::to_string(elements) + " elements, no multiple of the block of " +
          std::to_string(Info(dtype).block_elements) + " of " + std::string(Info(dtype).name));
  return check.Result();
}

constexpr HeadKernels kPortable = {&linear::kPortableKernels, &kRowSumsPortable};
#if defined(__x86_64__)
constexpr HeadKernels kAvx2 = {&linear::kAvx2Kernels, &kRowSumsAvx2};
constexpr HeadKernels kAvx512 = {&linear::kAvx512Kernels, &kRowSumsAvx512};
#endif

template <const HeadKernels* kKernels>
void Run(const OpCall& call, KernelContext& context) {
  head_linear::RunKernels(*kKernels, call, context);
}

constexpr F32Kernel kReference{.act_inputs = 0b1,
                               .run = head_linear::RunReference,
                               .workspace_bytes = head_linear::ReferenceWorkspaceBytes};

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"head_linear", "avx512", 30, OnAvx512, Run<&kAvx512>, head_linear::WorkspaceBytes},
    {"head_linear", "avx2", 20, OnAvx2, Run<&kAvx2>, head_linear::WorkspaceBytes},
#endif
    {"head_linear", "portable", 10, OnEveryCpu, Run<&kPortable>, head_linear::WorkspaceBytes},
    WidenedReference<&kReference>("head_linear"),
};

constexpr OpDefinition kDefinition{.op = "head_linear",
                                   .check = CheckHeadLinear,
                                   .kernels = kKernels,
                                   .traits = {.matrices = {.first = 1, .stride = 1}}};

}  // namespace

const OpDefinition& HeadLinearOp() { return kDefinition; }

}  // namespace pagemill::ops
