#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rotary/rotary.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, Rotary) {
  ops::CheckRotaryConformance(OnGpu<RotaryKernels>(ops::RotaryOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
