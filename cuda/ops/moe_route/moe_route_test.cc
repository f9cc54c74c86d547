#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/moe_route/moe_route.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, MoeRoute) {
  ops::CheckMoeRouteConformance(OnGpu<MoeRouteKernels>(ops::MoeRouteOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
