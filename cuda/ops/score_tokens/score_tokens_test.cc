#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/score_tokens/score_tokens.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, ScoreTokens) {
  ops::CheckScoreTokensConformance(OnGpu<ScoreTokensKernels>(ops::ScoreTokensOp()),
                                   GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
