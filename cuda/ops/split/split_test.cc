#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/split/split.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, Split) {
  ops::CheckSplitConformance(OnGpu<SplitKernels>(ops::SplitOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
