#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/mask_tokens/mask_tokens.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, MaskTokens) {
  ops::CheckMaskTokensConformance(OnGpu<MaskTokensKernels>(ops::MaskTokensOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
