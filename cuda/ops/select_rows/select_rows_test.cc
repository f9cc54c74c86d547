#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/select_rows/select_rows.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, SelectRows) {
  ops::CheckSelectRowsConformance(OnGpu<SelectRowsKernels>(ops::SelectRowsOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
