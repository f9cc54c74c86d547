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
  CheckAlignedRows(OnGpu<RmsNormKernels>(ops::RmsNormOp()),
                   {.inputs = 1, .weights = true});
}

}  // namespace
}  // namespace pagemill::gpu
