#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/state_space_scan/state_space_scan.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, StateSpaceScan) {
  ops::CheckStateSpaceScanConformance(OnGpu<StateSpaceScanKernels>(ops::StateSpaceScanOp()),
                                      GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
