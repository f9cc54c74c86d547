#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/selective_scan/selective_scan.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, SelectiveScan) {
  ops::CheckSelectiveScanConformance(OnGpu<SelectiveScanKernels>(ops::SelectiveScanOp()),
                                     GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
