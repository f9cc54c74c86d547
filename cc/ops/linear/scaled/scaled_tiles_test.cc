// The AMX kernel over emulated tiles.
#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/linear/packed_gemm.h"
#include "cc/ops/linear/scaled/emulated_scaled.h"
#include "cc/ops/linear/scaled/packed_scaled.h"

namespace pagemill::ops::scaled {
namespace {

#if defined(__x86_64__)
TEST(ScaledTiles, Conform) {
  const device::Capabilities caps = device::DetectCapabilities();
  if (!caps.cpu.avx512 || !caps.cpu.avx512_vnni || !caps.cpu.avx512_bf16) {
    GTEST_SKIP() << "needs AVX-512 with VNNI and BF16";
  }
  Kernel kernel;
  for (const Kernel& of_machine : LinearOp().kernels) {
    if (of_machine.name == "avx512_vnni")
      kernel = of_machine;  // the last one is for scaled weights
  }
  ASSERT_EQ(kernel.packing->layout, kPackedScaledLayout);
  kernel.name = "emulated";
  kernel.run = [](const OpCall& call, KernelContext& context) {
    linear::RunPacked(kEmulatedInt8Kernels, call, context);
  };
  kernel.run_row_maxima = [](const OpCall& call, KernelContext& context, int64_t columns,
                             RowMaximum* maxima) {
    linear::RunPackedMaxima(kEmulatedInt8Kernels, call, context, columns, maxima);
  };
  kernel.workspace_bytes = [](const OpCall& call, int32_t num_threads) {
    return linear::PackedWorkspaceBytes(kEmulatedInt8Kernels, call, num_threads);
  };
  const Kernel kernels[] = {kernel, conformance::ReferenceKernel(LinearOp())};
  CheckScaledConformance({.op = "linear", .check = LinearOp().check, .kernels = kernels}, caps);
}
#endif

}  // namespace
}  // namespace pagemill::ops::scaled
