#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/paged_attention/paged_attention.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, PagedAttention) {
  ops::CheckPagedAttentionConformance(OnGpu<PagedAttentionKernels>(ops::PagedAttentionOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
