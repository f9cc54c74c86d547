#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/grouped_linear/grouped_linear.h"
#include "cc/ops/linear/linear.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, GroupedLinear) {
  ops::CheckGroupedLinearConformance(OnGpu<GroupedLinearKernels>(ops::GroupedLinearOp()),
                                     OnGpu<LinearKernels>(ops::LinearOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
