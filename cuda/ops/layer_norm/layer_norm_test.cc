#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/layer_norm/layer_norm.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, LayerNorm) {
  ops::CheckLayerNormConformance(OnGpu<LayerNormKernels>(ops::LayerNormOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
