#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/scatter_rows/scatter_rows.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, ScatterRows) {
  ops::CheckScatterRowsConformance(OnGpu<ScatterRowsKernels>(ops::ScatterRowsOp()),
                                   GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
