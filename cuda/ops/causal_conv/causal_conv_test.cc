#include "cuda/ops/kernels.h"

#include "cc/ops/causal_conv/causal_conv.h"
#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, CausalConv) {
  ops::CheckCausalConvConformance(OnGpu<CausalConvKernels>(ops::CausalConvOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
