#include "cc/ops/matrix_wkv/matrix_wkv.h"

#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, MatrixWkv) {
  ops::CheckMatrixWkvConformance(OnGpu<MatrixWkvKernels>(ops::MatrixWkvOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
