#include "sycl/ops_table.h"

#include <algorithm>
#include <vector>

#include "cc/base/status.h"
#include "sycl/ops/kernels.h"

namespace pagemill::sycl {
namespace {

// Sorted by the name of the op.
const ops::Kernel* const kKernels[] = {
    &kAdd,        &kAddRmsNorm,    &kArgmax,       &kDrawTokens, &kEmbedding,      &kGatedActivation,
    &kGroupedLinear, &kKvWrite,    &kLinear,       &kMaskTokens, &kMoeCombine,     &kMoeRoute,
    &kPagedAttention, &kRmsNorm,   &kRotary,       &kRotaryKvWrite, &kSelectRows,  &kTakeTokens,
};

std::vector<ops::OpDefinition> MakeTable() {
  std::vector<ops::OpDefinition> table;
  for (const ops::Kernel* kernel : kKernels) {
    const StatusOr<const ops::OpDefinition*> of_cpu = ops::FindOp(ops::CpuOps(), kernel->op);
    PAGEMILL_CHECK(of_cpu.ok());
    PAGEMILL_CHECK(table.empty() || table.back().op < kernel->op);
    table.push_back(**of_cpu);
    table.back().kernels = {kernel, 1};
    table.back().automatic_activations = nullptr;
  }
  return table;
}

}  // namespace

std::span<const ops::OpDefinition> SyclOps() {
  static const std::vector<ops::OpDefinition> table = MakeTable();
  return table;
}

}  // namespace pagemill::sycl
