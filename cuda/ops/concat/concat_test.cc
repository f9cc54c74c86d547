#include "cuda/ops/kernels.h"

#include "cc/ops/concat/concat.h"
#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, Concat) {
  ops::CheckConcatConformance(OnGpu<ConcatKernels>(ops::ConcatOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
