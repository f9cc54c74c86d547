#include "cc/ops/all_reduce_add_rms_norm/all_reduce_add_rms_norm.h"

#include "cc/ops/all_reduce_add_rms_norm/all_reduce_add_rms_norm_conformance.h"
#include "cuda/ops/all_reduce_add_rms_norm/all_reduce_add_rms_norm.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, AllReduceAddRmsNorm) {
  ops::CheckAllReduceAddRmsNormConformance(
      OnGpu<AllReduceAddRmsNormKernels>(ops::AllReduceAddRmsNormOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
