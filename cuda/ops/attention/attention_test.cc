#include "cuda/ops/kernels.h"

#include "cc/ops/attention/attention.h"
#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, Attention) {
  ops::CheckAttentionConformance(OnGpu<AttentionKernels>(ops::AttentionOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
