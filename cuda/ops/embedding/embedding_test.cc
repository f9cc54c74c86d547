#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/embedding/embedding.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, Embedding) {
  ops::CheckEmbeddingConformance(OnGpu<EmbeddingKernels>(ops::EmbeddingOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
