#include "cc/ops/stream_weights/stream_weights.h"

#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, StreamWeights) {
  ops::CheckStreamWeightsConformance(OnGpu<StreamWeightsKernels>(ops::StreamWeightsOp()),
                                     GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
