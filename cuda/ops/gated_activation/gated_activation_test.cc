#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/gated_activation/gated_activation.h"
#include "cuda/ops/testing/aligned_rows.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, GatedActivation) {
  ops::CheckGatedActivationConformance(OnGpu<GatedActivationKernels>(ops::GatedActivationOp()),
                                       GpuCapabilities());
}

TEST_P(GpuConformance, GatedActivationOfAlignedRows) {
  RowOperands operands = {.inputs = 2};
  for (int32_t kind = 0; kind < ops::kNumActivationKinds; ++kind) {
    operands.attributes.Set("kind", kind);
    CheckAlignedRows(OnGpu<GatedActivationKernels>(ops::GatedActivationOp()), operands);
  }
}

}  // namespace
}  // namespace pagemill::gpu
