#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/latent_write/latent_write.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, LatentWrite) {
  ops::CheckLatentWriteConformance(OnGpu<LatentWriteKernels>(ops::LatentWriteOp()),
                                   GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
