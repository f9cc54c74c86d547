#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/pool/pool.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, Pool) {
  ops::CheckPoolConformance(OnGpu<PoolKernels>(ops::PoolOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
