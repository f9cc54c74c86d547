#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/moe_combine/moe_combine.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, MoeCombine) {
  ops::CheckMoeCombineConformance(OnGpu<MoeCombineKernels>(ops::MoeCombineOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
