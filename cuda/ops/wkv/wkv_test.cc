#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/wkv/wkv.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, Wkv) {
  ops::CheckWkvConformance(OnGpu<WkvKernels>(ops::WkvOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
