#include "cuda/ops/kernels.h"

#include "cc/ops/add_rms_norm/add_rms_norm.h"
#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/testing/aligned_rows.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, AddRmsNorm) {
  ops::CheckAddRmsNormConformance(OnGpu<AddRmsNormKernels>(ops::AddRmsNormOp()), GpuCapabilities());
}

TEST_P(GpuConformance, AddRmsNormOfAlignedRows) {
  RowOperands operands = {.inputs = 2, .weights = true, .outputs = 2};
  operands.attributes.Set("eps", 1e-5);
  CheckAlignedRows(OnGpu<AddRmsNormKernels>(ops::AddRmsNormOp()), operands);
}

}  // namespace
}  // namespace pagemill::gpu
