#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/select_tokens/select_tokens.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, SelectTokens) {
  ops::CheckSelectTokensConformance(OnGpu<SelectTokensKernels>(ops::SelectTokensOp()),
                                    GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
