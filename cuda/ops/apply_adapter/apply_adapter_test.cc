#include "cuda/ops/kernels.h"

#include <array>

#include "cc/ops/apply_adapter/apply_adapter.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/testing/adapters_on_device.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

void RunOnGpu(const ops::OpCall& call, ops::KernelContext& context) {
  ops::conformance::RunWithAdapters(TheGpu(), TestedGpu(), ApplyAdapterKernels()[0], call, context);
}

TEST_P(GpuConformance, ApplyAdapter) {
  ops::Kernel kernel = ApplyAdapterKernels()[0];
  kernel.run = RunOnGpu;
  kernel.workspace_bytes = nullptr;  // it is the device's
  const std::array kernels = {kernel, ops::conformance::ReferenceKernel(ops::ApplyAdapterOp())};
  ops::OpDefinition op = ops::ApplyAdapterOp();
  op.kernels = kernels;
  ops::CheckApplyAdapterConformance(op, GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
