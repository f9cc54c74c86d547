#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/count_tokens/count_tokens.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, CountTokens) {
  ops::CheckCountTokensConformance(OnGpu<CountTokensKernels>(ops::CountTokensOp()),
                                   GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
