#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/head_linear/head_linear.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, HeadLinear) {
  ops::CheckHeadLinearConformance(OnGpu<HeadLinearKernels>(ops::HeadLinearOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
