#include "cc/ops/mix_streams/mix_streams.h"

#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, MixStreams) {
  ops::CheckMixStreamsConformance(OnGpu<MixStreamsKernels>(ops::MixStreamsOp()),
                                  GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
