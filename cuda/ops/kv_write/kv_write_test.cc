#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/kv_write/kv_write.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, KvWrite) {
  ops::CheckKvWriteConformance(OnGpu<KvWriteKernels>(ops::KvWriteOp()), GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
