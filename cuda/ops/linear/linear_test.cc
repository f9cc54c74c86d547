#include "cuda/ops/linear/linear.h"

#include "cc/ops/linear/linear.h"
#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, Linear) {
  ops::CheckLinearConformance(OnGpu<LinearKernels>(ops::LinearOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
