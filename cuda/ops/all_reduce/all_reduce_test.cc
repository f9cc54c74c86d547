#include "cc/ops/all_reduce/all_reduce.h"

#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, AllReduce) {
  ops::CheckAllReduceConformance(OnGpu<AllReduceKernels>(ops::AllReduceOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
