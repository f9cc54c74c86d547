#include "cc/ops/depthwise_conv/depthwise_conv.h"

#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, DepthwiseConv) {
  ops::CheckDepthwiseConvConformance(OnGpu<DepthwiseConvKernels>(ops::DepthwiseConvOp()),
                                     GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
