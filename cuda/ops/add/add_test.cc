#include "cuda/ops/kernels.h"

#include "cc/ops/add/add.h"
#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, Add) {
  ops::CheckAddConformance(OnGpu<AddKernels>(ops::AddOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
