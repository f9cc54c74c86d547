#include "cuda/ops/kernels.h"

#include "cc/ops/adjust_logits/adjust_logits.h"
#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, AdjustLogits) {
  ops::CheckAdjustLogitsConformance(OnGpu<AdjustLogitsKernels>(ops::AdjustLogitsOp()),
                                    GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
