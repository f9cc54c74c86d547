#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/kv_write/kv_write.h"
#include "cc/ops/rotary/rotary.h"
#include "cc/ops/rotary_kv_write/rotary_kv_write.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, RotaryKvWrite) {
  const ops::OpDefinition definitions[] = {OnGpu<KvWriteKernels>(ops::KvWriteOp()),
                                           OnGpu<RotaryKernels>(ops::RotaryOp()),
                                           OnGpu<RotaryKvWriteKernels>(ops::RotaryKvWriteOp())};
  ops::CheckRotaryKvWriteConformance(definitions, GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
