#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/scale/scale.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, Scale) {
  ops::CheckScaleConformance(OnGpu<ScaleKernels>(ops::ScaleOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
