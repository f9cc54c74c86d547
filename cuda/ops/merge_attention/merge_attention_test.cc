#include "cc/ops/merge_attention/merge_attention.h"

#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, MergeAttention) {
  ops::CheckMergeAttentionConformance(OnGpu<MergeAttentionKernels>(ops::MergeAttentionOp()),
                                      GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
