#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/draw_tokens/draw_tokens.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, DrawTokens) {
  ops::CheckDrawTokensConformance(OnGpu<DrawTokensKernels>(ops::DrawTokensOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
