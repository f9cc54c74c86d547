#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/compress_tokens/compress_tokens.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, CompressTokens) {
  ops::CheckCompressTokensConformance(OnGpu<CompressTokensKernels>(ops::CompressTokensOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
