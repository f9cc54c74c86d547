#include "cuda/ops/kernels.h"

#include "cc/ops/activation/activation.h"
#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, Activation) {
  ops::CheckActivationConformance(OnGpu<ActivationKernels>(ops::ActivationOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
