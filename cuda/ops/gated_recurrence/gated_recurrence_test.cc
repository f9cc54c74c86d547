#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/gated_recurrence/gated_recurrence.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, GatedRecurrence) {
  ops::CheckGatedRecurrenceConformance(OnGpu<GatedRecurrenceKernels>(ops::GatedRecurrenceOp()),
                                       GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
