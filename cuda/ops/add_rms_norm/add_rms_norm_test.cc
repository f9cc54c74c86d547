#include "cuda/ops/kernels.h"

#include "cc/ops/add_rms_norm/add_rms_norm.h"
#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, AddRmsNorm) {
  ops::CheckAddRmsNormConformance(OnGpu<AddRmsNormKernels>(ops::AddRmsNormOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
