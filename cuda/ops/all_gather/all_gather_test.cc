#include "cc/ops/all_gather/all_gather.h"

#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, AllGather) {
  ops::CheckAllGatherConformance(OnGpu<AllGatherKernels>(ops::AllGatherOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
