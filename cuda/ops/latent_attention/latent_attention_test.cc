#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/latent_attention/latent_attention.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, LatentAttention) {
  ops::CheckLatentAttentionConformance(OnGpu<LatentAttentionKernels>(ops::LatentAttentionOp()),
                                       GpuCapabilities());
}

TEST_P(GpuConformance, LatentAttentionInvariance) {
  ops::CheckLatentAttentionInvariance(OnGpu<LatentAttentionKernels>(ops::LatentAttentionOp()),
                                      GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
