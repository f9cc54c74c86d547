#include "cc/ops/unfold/unfold.h"

#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, Unfold) {
  ops::CheckUnfoldConformance(OnGpu<UnfoldKernels>(ops::UnfoldOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
