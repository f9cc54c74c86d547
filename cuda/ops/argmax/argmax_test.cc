#include "cuda/ops/kernels.h"

#include "cc/ops/argmax/argmax.h"
#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, Argmax) {
  ops::CheckArgmaxConformance(OnGpu<ArgmaxKernels>(ops::ArgmaxOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
