#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/take_tokens/take_tokens.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, TakeTokens) {
  ops::CheckTakeTokensConformance(OnGpu<TakeTokensKernels>(ops::TakeTokensOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
