#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/gated_delta/gated_delta.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, GatedDelta) {
  ops::CheckGatedDeltaConformance(OnGpu<GatedDeltaKernels>(ops::GatedDeltaOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
