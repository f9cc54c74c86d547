#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rms_norm/rms_norm.h"
#include "cuda/ops/testing/aligned_rows.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, RmsNorm) {
  ops::CheckRmsNormConformance(OnGpu<RmsNormKernels>(ops::RmsNormOp()), GpuCapabilities());
}

TEST_P(GpuConformance, RmsNormOfAlignedRows) {
  RowOperands operands = {.inputs = 1, .weights = true};
  operands.attributes.Set("eps", 1e-5);
  CheckAlignedRows(OnGpu<RmsNormKernels>(ops::RmsNormOp()), operands);
}

}  // namespace
}  // namespace pagemill::gpu
