#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/sparse_relu/sparse_relu.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, SparseRelu) {
  ops::CheckSparseReluConformance(OnGpu<SparseReluKernels>(ops::SparseReluOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
